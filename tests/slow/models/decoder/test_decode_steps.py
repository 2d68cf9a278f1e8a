"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly."""

import random

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.draft_model import ModelDrafter
from processors.graphs import Graphs
from tests.models.decoder.test_decode_steps import runner
from tests.models.native import native_decoder
from tests.models.schedules import LANES, Guessing, check_replays, held, prompts, texts
from tests.models.tiny_models import VOCAB, build_native
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
