"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly."""

import random
from functools import cache

import pytest
import torch

from gencli.core.events import Finish
from gencli.core.step import Feed, StepPlan
from gencli.engine.engine import Engine
from gencli.models.decoder.runner import DecoderRunner
from gencli.speculative.draft_model import ModelDrafter
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, request
from tests.models.native import native_decoder
from tests.models.schedules import LANES, Guessing, check_replays, held, prompts, texts, tokens_at
from tests.models.tiny_models import NATIVE_CONFIGS, VOCAB, build_native
from tests.recorder import CpuRecorder
from tests.sham import CUDA, sham_device


@cache
def decoder(kind):
    return native_decoder(build_native(kind), stacks_experts=True)


def runner(kind, graphs=None, max_lanes=LANES):
    return DecoderRunner(decoder(kind), max_lanes=max_lanes, graphs=graphs)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_replayed_steps_choose_the_tokens_and_accept_the_drafts_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=6, least=20)
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=6, least=20, drafter=Guessing)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
def test_replayed_steps_of_many_seeds_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200)
    if kind in ("llama", "gemma2"):
        check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200, drafter=Guessing)


def test_replayed_steps_choose_experts_on_the_device():
    check_replays(lambda graphs: runner("gpt_oss", graphs), num_seeds=4, least=16)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_replayed_steps_of_many_seeds_choose_experts_on_the_device(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=12, least=48)


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


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_all_models_have_the_logits_of_eager_steps_and_of_the_plain_decoder(kind):
    check_logits(kind, range(3))


def test_ids_may_come_from_the_device():
    ids, plans = torch.tensor([11, 12, 13]), [tokens_at(6 + step, last=11) for step in range(4)]
    one, other = (runner("llama", Graphs(CpuRecorder)) for _ in range(2))
    for run in (one, other):
        held(run, steps=1)
    for step, plan in enumerate(plans):
        unknown = tokens_at(6 + step, last=0)
        assert torch.equal(one.forward(plan), other.forward_ahead(unknown, ids))


def test_there_is_a_graph_for_each_bucket_and_none_for_other_steps():
    graphs = Graphs(CpuRecorder)
    run = runner("llama", graphs, max_lanes=5)
    for lanes, recorded in ((range(5), 1), ((0,), 2), ((0, 1), 3), ((0, 1, 2), 4), ((0, 1, 2, 3), 4)):
        held(run, steps=3, lanes=lanes)
        assert graphs.num_recorded == recorded
        for lane in lanes:
            run.release(lane)
    held(run, steps=2, length=255, lanes=(0,))  # 256 keys, then 257, for which the buffers move
    assert graphs.num_kept == 0


class Full:
    """A recorder for which the memory is full."""

    def record(self, run):
        raise torch.OutOfMemoryError("full")

    def renew(self):
        pass


def test_where_a_recording_fills_the_memory_steps_go_on_without_it():
    requests = [
        request(text, chain="ignore_eos=true | temperature=0.8", max_tokens=8) for text in ("ab", "cde")
    ]

    def outcome(make):
        engine = Engine(runner("llama", Graphs(make)), TOKENIZER, max_batch=2)
        for one in requests:
            engine.submit(one)
        ends = {event.request: event.text for event in engine.run() if isinstance(event, Finish)}
        return ends, engine.limit, engine.notices

    ends, limit, notices = outcome(Full)
    assert (ends, limit) == outcome(None)[:2]
    assert [notice for notice in notices if "CUDA graph" in notice] == notices


def test_freed_lanes_have_no_graphs():
    graphs = Graphs(CpuRecorder)
    run = runner("llama", graphs)
    held(run, steps=3)
    for lane in range(3):
        run.release(lane)
    run.free_cache()
    assert graphs.num_kept == 0
    held(run, steps=3)
    assert graphs.num_recorded == 2


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
    assert [call.place for call in steps[-1].calls].count("processors/upload.py:upload_into") == 1


def test_a_draft_model_and_its_target_are_replayed_beside_each_other():
    def outcomes(make):
        run, drafts = runner("llama", Graphs(make)), []

        def drafter():
            drafts.append(run.first_layers(1, max_lanes=LANES))
            return ModelDrafter(drafts[-1])

        found = [texts(seed, run, drafter=drafter) for seed in range(1, 5)]
        return found, sum(draft.spec.graphs.num_replayed for draft in drafts)

    (recorded, num_replayed), (eager, _) = outcomes(CpuRecorder), outcomes(None)
    assert recorded == eager
    assert num_replayed > 20
