"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly.

A full memory or a lost device while a step is recorded or replayed, or while its buffers grow. Kernels that
a decode step on CUDA launches, in a layer and outside of all layers.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gencli.core.events import Finish
from gencli.engine.engine import Engine
from gencli.errors import DeviceError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.kv import lane_buffers as buffers
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, engine, request, texts
from tests.models.native import native_decoder
from tests.models.schedules import LANES, held, tokens_at
from tests.models.tiny_models import NATIVE_CONFIGS, build_native
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


FULL = {
    "allocator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "driver": torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
}
LOST = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
CHAIN = "ignore_eos=true | temperature=0.9 | top_p=0.95"


class Faulty(CpuRecorder):
    """Fails in the middle of a recording, or at a replay: at the `at`-th of all of them."""

    def __init__(self, where, error, at=1, struck=lambda: None):
        super().__init__()
        self.where, self.error, self.at, self.struck, self.count = where, error, at, struck, 0

    def __call__(self):
        """The recorder, for Graphs, which makes one anew after a fault."""
        return self

    def reach(self, where):
        self.count += where == self.where
        if where == self.where and self.count == self.at:
            self.struck()
            raise self.error

    def record(self, run):
        def broken():
            outputs = run()
            self.reach("record")
            return outputs

        return Replayed(super().record(broken), self)


class Replayed:
    """A graph of a Faulty recorder."""

    def __init__(self, graph, recorder):
        self.graph, self.recorder, self.nbytes = graph, recorder, graph.nbytes

    def replay(self):
        self.recorder.reach("replay")
        return self.graph.replay()


class Gone(TorchDispatchMode):
    """A device on which nothing computes once it `is_lost`."""

    is_lost = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.is_lost:
            raise LOST
        return function(*args, **(kwargs or {}))

    def lose(self):
        self.is_lost = True


@cache
def growing_decoder():
    return native_decoder(build_native("llama"))


def growing_runner(graphs):
    return DecoderRunner(growing_decoder(), max_lanes=4, graphs=graphs)


def requests():
    """Four texts, of which the last grows beyond 256 tokens."""
    return [
        request(c * length, key=c, chain=CHAIN, max_tokens=9)
        for c, length in zip("abcd", (3, 5, 9, 252), strict=True)
    ]


@cache
def wanted():
    return texts(requests(), runner=growing_runner(Graphs(None)), max_batch=4)


def test_a_full_memory_while_buffers_grow_drops_the_graphs_and_halves_the_batch(monkeypatch):
    graphs, zeros, kept = Graphs(CpuRecorder), buffers._zeros, []

    def full(shape, like):
        if graphs.num_kept and not kept:
            kept.append(graphs.num_kept)
            raise FULL["allocator"]
        return zeros(shape, like)

    monkeypatch.setattr(buffers, "_zeros", full)
    on = engine(runner=growing_runner(graphs), max_batch=4)
    assert texts(requests(), on=on) == wanted()
    assert kept
    assert on.limit == 2
    assert graphs.num_recorded > 1


def check_lost(on):
    for one in requests():
        on.submit(one)
    with pytest.raises(DeviceError, match="illegal memory access"):
        list(on.run())
    assert not any("CUDA graph" in text for text in on.notices)


@pytest.mark.parametrize("where", ["record", "replay"])
def test_a_device_that_is_lost_ends_in_one_error(where):
    with Gone() as gone:
        check_lost(engine(runner=growing_runner(Graphs(Faulty(where, LOST, struck=gone.lose))), max_batch=4))


def test_a_device_that_is_lost_while_buffers_grow_ends_in_one_error(monkeypatch):
    graphs, zeros = Graphs(CpuRecorder), buffers._zeros

    def lost(shape, like):
        if graphs.num_kept:
            raise LOST
        return zeros(shape, like)

    monkeypatch.setattr(buffers, "_zeros", lost)
    check_lost(engine(runner=growing_runner(graphs), max_batch=4))


# By family: launches of a layer, and of a step outside of its layers. Raise a number only for a reason.
# A layer has four products, two norms with the sums before them, rotation, two for attention, and the gate.
LAUNCHES = {
    "llama": (10, 6),
    "mistral": (10, 6),
    "qwen2": (10, 6),
    "qwen3": (10, 6),
    "phi3": (10, 6),
    "granite": (10, 8),
    "olmo2": (10, 5),
    "smollm3": (10, 6),
    "gemma": (10, 7),
    "gemma2": (10, 10),
    "gemma3": (10, 9),
    # Experts: the router, their choice, two products for one, and the sum.
    "mixtral": (13, 6),
    "qwen3_moe": (13, 6),
    "gpt_oss": (13, 6),
}


def test_every_family_has_its_launches() -> None:
    families = {NATIVE_CONFIGS[kind]().model_type for kind in LAUNCHES}
    assert families == {make().model_type for make in NATIVE_CONFIGS.values()}
