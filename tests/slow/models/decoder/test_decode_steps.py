"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly.

A full memory or a lost device while a step is recorded or replayed, or while its buffers grow. Kernels that
a decode step on CUDA launches, in a layer and outside of all layers.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.draft_model import ModelDrafter
from processors.graphs import Graphs
from tests.engine.harness import engine
from tests.engine.harness import texts as faulty_texts
from tests.models.decoder.test_decode_steps import (
    FULL,
    LAUNCHES,
    Faulty,
    growing_runner,
    requests,
    runner,
    wanted,
)
from tests.models.native import native_decoder
from tests.models.schedules import LANES, Guessing, check_replays, held, prompts, texts
from tests.models.tiny_models import SUITE_KINDS, VOCAB, build_native
from tests.recorder import CpuRecorder
from tests.sham import CUDA, sham_device


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_replayed_steps_choose_the_tokens_and_accept_the_drafts_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=3, least=10)
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=3, least=10, drafter=Guessing)


def test_replayed_steps_choose_experts_on_the_device():
    check_replays(lambda graphs: runner("gpt_oss", graphs), num_seeds=2, least=8)


def drafted(run, seed, num_steps=24):
    """Logits of texts that come and go, with drafts of random lengths, of which random ones are refused."""
    draw, lengths, found = random.Random(seed), {}, []
    for step in range(num_steps):
        for lane in range(LANES):
            if draw.random() < 0.08 and lengths.pop(lane, None):
                run.release(lane)
            elif lane not in lengths and draw.random() < 0.3:
                lengths[lane] = draw.choice((2, 9, 240))
                run.forward(prompts(lengths[lane], [lane]))
        if not lengths:
            continue
        sizes = {lane: 1 + draw.choice((0, 1, 3, 4) if step % 6 else (15, 18)) for lane in lengths}
        unread = draw.random() < 0.2  # of each feed but the first one
        feeds = [
            Feed(lane, at, tuple(draw.choices(range(VOCAB), k=sizes[lane])), sizes[lane])
            for lane, at in lengths.items()
        ]
        feeds = [feed._replace(num_logits=max(1, feed.num_logits - unread)) for feed in feeds]
        found.append(run.forward(StepPlan(tuple(feeds))))
        for lane, size in sizes.items():
            lengths[lane] += draw.randint(1, size)
            run.truncate(lane, lengths[lane])
    for lane in range(LANES):
        run.release(lane)
    return found


def check_logits(kind, seeds):
    """Recorded steps, with drafts and without, have the logits of eager steps and of the plain decoder."""
    graphs = Graphs(CpuRecorder)
    runs = [runner(kind, one) for one in (graphs, Graphs(None), None)]
    for recorded, eager, plain in zip(*(held(run, steps=4) for run in runs), strict=True):
        assert torch.equal(recorded, eager)  # of all steps: a replay leaves the logits before it alone
        torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed == 3
    for run in runs:
        for lane in range(3):
            run.release(lane)
    for seed in seeds:
        for recorded, eager, plain in zip(*(drafted(run, seed) for run in runs), strict=True):
            assert torch.equal(recorded, eager)
            torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed > 6 * len(seeds)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt_oss"])
def test_drafts_have_the_logits_of_eager_steps_and_of_the_plain_decoder(kind):
    check_logits(kind, [0])


def test_a_draft_model_and_its_target_are_replayed_beside_each_other():
    def outcomes(make):
        run, drafts = runner("llama", Graphs(make)), []

        def drafter():
            drafts.append(run.first_layers(1, max_lanes=LANES))
            return ModelDrafter(drafts[-1])

        found = [texts(seed, run, drafter=drafter) for seed in range(1, 3)]
        return found, sum(draft.spec.graphs.num_replayed for draft in drafts)

    (recorded, num_replayed), (eager, _) = outcomes(CpuRecorder), outcomes(None)
    assert recorded == eager
    assert num_replayed > 10


def as_in_a_graph(step):
    """The launches of a step, with what it allocates by order; the copy of its inputs is not among them."""
    calls = [call for call in step.calls if not call.place.endswith(":upload_into")]
    order = {}
    for call in calls:
        for number, _ in call.addresses:
            if number >= step.first:
                order.setdefault(number, -1 - len(order))
    return [
        call._replace(addresses=tuple((order.get(number, number), at) for number, at in call.addresses))
        for call in calls
    ]


def with_drafts(length, sizes):
    """A step of texts of equal length, each with drafts."""
    return StepPlan(tuple(Feed(lane, length, (7,) * size, size) for lane, size in enumerate(sizes)))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 1, 3)], ids=["tokens", "drafts"])
def test_two_steps_launch_the_same_operations_at_the_same_addresses_and_none_waits(sizes):
    with sham_device() as seen:
        run = DecoderRunner(native_decoder(build_native("llama"), CUDA), max_lanes=LANES)
        run.forward(prompts(5))
        steps = []
        for length in range(5, 9):
            seen.clear()
            run.forward(with_drafts(length, sizes))
            assert not seen.waits
            steps.append(seen.cut())
            for lane in range(3):
                run.truncate(lane, length + 1)
    assert as_in_a_graph(steps[-2]) == as_in_a_graph(steps[-1])
    assert [call.place for call in steps[-1].calls].count("processors/graphs.py:upload_into") == 1


REFUSED = {
    "a wait": torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing"),
    "a foreign error": ValueError("no such kernel"),
}


@pytest.mark.parametrize("error", [*FULL.values(), *REFUSED.values()], ids=[*FULL, *REFUSED])
def test_a_recording_that_fails_costs_a_notice_and_no_text(error):
    graphs = Graphs(Faulty("record", error))
    on = engine(runner=growing_runner(graphs), max_batch=4)
    assert faulty_texts(requests(), on=on) == wanted()
    told = [text for text in on.notices if "CUDA graph" in text]
    assert len(told) == 1
    assert ("the memory is full" in told[0]) == (error in FULL.values())
    assert on.limit == 4


@pytest.mark.parametrize(("error", "at"), [*zip(FULL.values(), (1, 2, 3), strict=True)], ids=FULL)
def test_a_full_memory_at_a_replay_halves_the_batch(error, at):
    graphs = Graphs(Faulty("replay", error, at))
    on = engine(runner=growing_runner(graphs), max_batch=4)
    assert faulty_texts(requests(), on=on) == wanted()
    assert on.limit == 2
    assert graphs.num_replayed > at  # steps are recorded anew


def launches(kind: str, num_layers: int) -> dict[str, int]:
    """The launches of a decode step of three rows."""
    decoder = native_decoder(build_native(kind), CUDA)
    runner = DecoderRunner(replace(decoder, layers=decoder.layers[:num_layers]), max_lanes=3)
    with sham_device() as seen:
        for start, count in ((0, 5), (5, 1), (6, 1)):
            seen.clear()
            runner.forward(StepPlan(tuple(Feed(lane, start, (lane + 1,) * count, 1) for lane in range(3))))
        return dict(seen.launches)


def counted(kind: str) -> tuple[int, int]:
    """The launches of a layer, and of a step outside of its layers."""
    with sham_device():
        one, two = (sum(launches(kind, count).values()) for count in (1, 2))
    return two - one, 2 * one - two


of_this_table = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13"
)


@of_this_table
def test_a_layer_launches_no_more_kernels_than_the_table_says() -> None:
    assert {kind: counted(kind) for kind in SUITE_KINDS} == {kind: LAUNCHES[kind] for kind in SUITE_KINDS}
