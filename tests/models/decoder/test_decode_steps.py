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
from tests.models.schedules import (
    LANES,
    Guessing,
    behind_a_move,
    check_replays,
    held,
    prompts,
    texts,
    tokens_at,
)
from tests.models.tiny_models import NATIVE_CONFIGS, SWITCH, VOCAB, build_native, long_rope
from tests.recorder import CpuRecorder
from tests.sham import CUDA, sham_device


@cache
def decoder(kind):
    return native_decoder(build_native(kind), stacks_experts=True)


def runner(kind, graphs=None, max_lanes=LANES):
    return DecoderRunner(decoder(kind), max_lanes=max_lanes, graphs=graphs)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
def test_replayed_steps_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_replayed_steps_accept_the_drafts_that_eager_ones_accept(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200, drafter=Guessing)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_replayed_steps_choose_experts_on_the_device(kind):
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


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_drafts_have_the_logits_of_eager_steps_and_of_the_plain_decoder(kind):
    graphs = Graphs(CpuRecorder)
    runs = [runner(kind, one) for one in (graphs, Graphs(None), None)]
    for seed in range(3):
        for recorded, eager, plain in zip(*(drafted(run, seed) for run in runs), strict=True):
            assert torch.equal(recorded, eager)
            torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed > 20


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_logits_are_those_of_the_plain_decoder(kind):
    graphs = Graphs(CpuRecorder)
    for one, other in zip(held(runner(kind, graphs), steps=4), held(runner(kind), steps=4), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed == 3


@pytest.mark.parametrize("size", [1, 3])
def test_a_long_rope_takes_the_factors_of_each_text(size):
    def logits(graphs):
        run = DecoderRunner(native_decoder(long_rope("phi3")), max_lanes=3, graphs=graphs)
        for lane, length in enumerate((SWITCH - 3, SWITCH + 5, 4)):
            run.forward(StepPlan((prompts(length, [lane]).feeds[0],)))
        places = [SWITCH - 3, SWITCH + 5, 4]
        return [
            run.forward(
                StepPlan(
                    tuple(Feed(lane, at + size * step, (9,) * size, size) for lane, at in enumerate(places))
                )
            )
            for step in range(6)
        ]

    graphs = Graphs(CpuRecorder)
    for one, other in zip(logits(graphs), logits(None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed


def test_nobody_reads_the_spare_row():
    wanted = held(runner("llama", Graphs(CpuRecorder)), steps=4)
    run = runner("llama", Graphs(CpuRecorder))
    assert torch.equal(held(run, steps=1)[0], wanted[0])
    with torch.inference_mode():
        for buffer in run._lanes._buffers:
            buffer._data[run._lanes._store.rows.spare] = torch.nan
    for step, one in enumerate(wanted[1:], 1):
        assert torch.equal(run.forward(tokens_at(5 + step)), one)


def test_logits_stay_when_the_next_step_is_replayed():
    run = runner("llama", Graphs(CpuRecorder))
    kept = held(run, steps=4)
    again = [one.clone() for one in held(runner("llama", Graphs(None)), steps=4)]
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))


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


def test_growing_buffers_are_recorded_anew():
    def logits(graphs):
        run = runner("llama", graphs)
        kept = held(run, steps=3)
        run.forward(StepPlan((prompts(600, [3]).feeds[0],)))
        return kept + [run.forward(tokens_at(8 + step)) for step in range(4)]

    graphs = Graphs(CpuRecorder)
    for one, other in zip(logits(graphs), logits(Graphs(None)), strict=True):
        assert torch.equal(one, other)
    assert graphs.num_recorded == 2


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


def test_a_draft_of_the_first_layers_has_graphs_of_its_own():
    graphs = Graphs(CpuRecorder)
    run = runner("llama", graphs)
    draft = run.first_layers(1, max_lanes=2)
    held(draft, steps=3, lanes=(0,))
    assert draft.spec.graphs is not graphs
    assert draft.spec.graphs.num_recorded == 1


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


def test_a_buffer_of_a_later_layer_that_moves_alone_is_read_where_it_is():
    runs = [runner("llama", Graphs(make)) for make in (CpuRecorder, None)]
    found = [behind_a_move(run, run._lanes._buffers[-1]) for run in runs]
    assert all(map(torch.equal, *found))
