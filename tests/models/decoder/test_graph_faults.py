"""A full memory or a lost device while a step is recorded or replayed, or while its buffers grow."""

from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gencli.errors import DeviceError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.kv import lane_buffers as buffers
from processors.graphs import Graphs
from tests.engine.harness import engine, request, texts
from tests.models.native import native_decoder
from tests.models.tiny_models import build_native
from tests.recorder import CpuRecorder

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
def decoder():
    return native_decoder(build_native("llama"))


def runner(graphs):
    return DecoderRunner(decoder(), max_lanes=4, graphs=graphs)


def requests():
    """Four texts, of which the last grows beyond 256 tokens."""
    return [
        request(c * length, key=c, chain=CHAIN, max_tokens=9)
        for c, length in zip("abcd", (3, 5, 9, 252), strict=True)
    ]


@cache
def wanted():
    return texts(requests(), runner=runner(Graphs(None)), max_batch=4)


def test_a_full_memory_while_buffers_grow_drops_the_graphs_and_halves_the_batch(monkeypatch):
    graphs, zeros, kept = Graphs(CpuRecorder), buffers._zeros, []

    def full(shape, like):
        if graphs.num_kept and not kept:
            kept.append(graphs.num_kept)
            raise FULL["allocator"]
        return zeros(shape, like)

    monkeypatch.setattr(buffers, "_zeros", full)
    on = engine(runner=runner(graphs), max_batch=4)
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
        check_lost(engine(runner=runner(Graphs(Faulty(where, LOST, struck=gone.lose))), max_batch=4))


def test_a_device_that_is_lost_while_buffers_grow_ends_in_one_error(monkeypatch):
    graphs, zeros = Graphs(CpuRecorder), buffers._zeros

    def lost(shape, like):
        if graphs.num_kept:
            raise LOST
        return zeros(shape, like)

    monkeypatch.setattr(buffers, "_zeros", lost)
    check_lost(engine(runner=runner(graphs), max_batch=4))
