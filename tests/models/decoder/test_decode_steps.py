"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly."""

from functools import cache

import torch

from gencli.core.events import Finish
from gencli.engine.engine import Engine
from gencli.models.decoder.decoder import DecoderRunner
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, request
from tests.models.native import native_decoder
from tests.models.schedules import LANES, held, tokens_at
from tests.models.tiny_models import build_native
from tests.recorder import CpuRecorder


@cache
def decoder(kind):
    return native_decoder(build_native(kind), stacks_experts=True)


def runner(kind, graphs=None, max_lanes=LANES):
    return DecoderRunner(decoder(kind), max_lanes=max_lanes, graphs=graphs)


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
