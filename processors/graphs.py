"""Device work: CUDA graphs that are captured once and replayed as one launch, inputs at fixed addresses,
and asynchronous copies between host and device.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from processors.errors import is_out_of_memory

Outputs = Tensor | tuple[Tensor, ...]

_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
_MORE_ROWS = 32  # spacing of larger buckets
_MOST_KEYS = 1024  # keys that are remembered; a forgotten key counts as new


def bucket_of(count: int) -> int:
    """Return the number of rows >= count to which a step is padded, so that few graphs are needed."""
    return _ROWS[bisect_left(_ROWS, count)] if count <= _ROWS[-1] else -(-count // _MORE_ROWS) * _MORE_ROWS


class Graph(Protocol):
    """A captured function of static tensors, with the device memory that it holds."""

    @property
    def nbytes(self) -> int:
        """The bytes of device memory that the capture reserved."""
        ...

    def replay(self) -> Outputs:
        """Launch the captured work; return its outputs, the same tensors each time."""
        ...


class GraphRecorder(Protocol):
    """Captures functions of static tensors on one device."""

    def record(self, run: Callable[[], Outputs]) -> Graph:
        """Return the graph of `run`, which has run before.

        Recording changes no tensor, whether it returns or raises. It raises an exception of any type if `run`
        cannot be captured, for instance because it waits for the device or copies from the host.
        """
        ...

    def renew(self) -> None:
        """Use a new memory pool; the graphs so far must not be replayed again."""
        ...


@dataclass(frozen=True, slots=True)
class _CudaGraph:
    graph: torch.cuda.CUDAGraph
    outputs: Outputs
    nbytes: int

    def replay(self) -> Outputs:
        self.graph.replay()
        return self.outputs


class CudaRecorder:
    """Captures CUDA graphs on its own stream into one memory pool.

    Graphs of a pool share the memory of their intermediate tensors, so they must not run concurrently. The
    stream is kept: PyTorch allocates a cuBLAS workspace for each stream, up to 32 MiB, and does not free it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, run: Callable[[], Outputs]) -> Graph:
        """Capture `run`, as GraphRecorder.record; its kernels do not execute during the capture."""
        try:
            return self._captured(run)
        except torch.OutOfMemoryError:
            pass  # outside the except block, whose traceback would keep tensors alive
        torch.cuda.empty_cache()  # during a capture the allocator frees none of its cached memory
        return self._captured(run)

    def renew(self) -> None:
        # Dropped graphs may still run, and unmapping their memory (expandable segments) synchronises with the
        # capture stream only.
        torch.cuda.current_stream(self._device).synchronize()
        self._pool = torch.cuda.graph_pool_handle()

    def _captured(self, run: Callable[[], Outputs]) -> Graph:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.memory_reserved(self._device)
        try:
            with capture(graph, self._stream, self._pool):
                outputs = run()
        except BaseException:
            self._pool = torch.cuda.graph_pool_handle()  # a pool without a graph cannot be used again
            raise
        return _CudaGraph(graph, outputs, max(torch.cuda.memory_reserved(self._device) - before, 0))


class Graphs:
    """Runs functions by key, and captures each as a graph at its second use; an LRU cache of graphs.

    `make` returns a recorder; None runs every function eagerly. At most `max_graphs` graphs with at most
    `max_bytes` bytes are kept; the least recently used is dropped first. If a capture fails, its key runs
    eagerly from then on and all graphs are dropped. One notice is added to `notices` after the eager run has
    succeeded: if that fails too, as on a lost device, its error is more precise.
    """

    def __init__(
        self, make: Callable[[], GraphRecorder] | None, *, max_graphs: int = 64, max_bytes: int = 2**30
    ) -> None:
        self._make, self._max_graphs, self._max_bytes = make, max_graphs, max_bytes
        self._recorder: GraphRecorder | None = None
        self._entries: OrderedDict[Hashable, Graph | Literal["seen", "failed"]] = OrderedDict()
        self.notices: list[str] = []
        self._fault, self._has_told = "", False  # reason of the first failed capture
        self.num_recorded = 0
        self.num_replayed = 0

    @property
    def num_kept(self) -> int:
        """The number of graphs that are kept."""
        return len(self._kept())

    def like(self) -> Graphs:
        """Return graphs with a memory pool of their own and the same limits, for work on another stream."""
        return Graphs(self._make, max_graphs=self._max_graphs, max_bytes=self._max_bytes)

    @property
    def records(self) -> bool:
        """Whether graphs are captured: then a later call with the same key overwrites the outputs."""
        return self._make is not None

    @property
    def nbytes(self) -> int:
        """The bytes of device memory that the captures of the kept graphs reserved."""
        return sum(graph.nbytes for _, graph in self._kept())

    def run(self, key: Hashable, run: Callable[[], Outputs]) -> Outputs:
        """Return the outputs of `run`, a function of static tensors that the key identifies.

        The outputs may be the same tensors at each call; the next call overwrites them.
        """
        if self._make is None:
            return run()
        graph = self._entries.get(key)
        if graph is None or graph == "failed":  # the first run compiles and allocates, which a capture cannot
            self._put(key, graph or "seen")
            return self._plain(run)
        if graph == "seen" and (graph := self._record(self._make, key, run)) is None:
            return self._plain(run)
        self._entries.move_to_end(key)
        self.num_replayed += 1
        return graph.replay()

    def _plain(self, run: Callable[[], Outputs]) -> Outputs:
        """Run eagerly; add the notice of a failed capture once."""
        outputs = run()
        if self._fault and not self._has_told:
            notice = f"A CUDA graph could not be recorded ({self._fault}): such steps run without it."
            if notice not in self.notices:
                self.notices.append(notice)
            self._has_told = True
        return outputs

    def clear(self) -> None:
        """Drop all graphs and their memory; keys start anew, except those whose capture failed."""
        if self._recorder is not None:
            self._recorder.renew()
        failed = [key for key, entry in self._entries.items() if entry == "failed"]
        self._entries.clear()
        for key in failed:
            self._entries[key] = "failed"

    def _record(
        self, make: Callable[[], GraphRecorder], key: Hashable, run: Callable[[], Outputs]
    ) -> Graph | None:
        """Return the new graph of a key; None if the capture fails."""
        fault = ""
        try:
            self._recorder = self._recorder or make()
            graph = self._recorder.record(run)
        except Exception as error:  # drivers and kernels raise exceptions of any type
            is_full = isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error)
            fault = "the memory is full" if is_full else str(error).partition("\n")[0] or type(error).__name__
        if fault:  # outside the except block, whose traceback would keep tensors alive
            self._put(key, "failed")
            self.clear()  # frees memory; the pool may be unusable after a failure
            self._fault = self._fault or fault
            return None
        self.num_recorded += 1
        self._put(key, graph)
        kept = self._kept()
        nbytes = self.nbytes
        while len(kept) > 1 and (len(kept) > self._max_graphs or nbytes > self._max_bytes):
            oldest, dropped = kept.pop(0)
            nbytes -= dropped.nbytes
            del self._entries[oldest]
        return graph

    def _put(self, key: Hashable, entry: Graph | Literal["seen", "failed"]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > _MOST_KEYS:
            self._entries.popitem(last=False)

    def _kept(self) -> list[tuple[Hashable, Graph]]:
        return [(key, entry) for key, entry in self._entries.items() if not isinstance(entry, str)]


_CAPTURING = Lock()  # PyTorch allows one capture at a time in a process


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """Capture the launches of this thread in the block into `graph`, on `stream`, with memory of `pool`.

    Replaces torch.cuda.graph, which after a failed capture leaves its stream the current one and the
    allocator in capture mode: cached memory is then never freed, and blocks used on several streams are never
    reused. torch.cuda.graph also synchronises with the device and empties the allocator's cache.
    """
    with _CAPTURING, torch.cuda.stream(stream):
        # thread_local: other threads may use the device meanwhile; only calls of this thread are checked.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the cause
                _end(graph, stream, pool)
            raise
        _end(graph, stream, pool)


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> None:
    try:
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # tells the allocator that the capture is over
            torch._C._cuda_endAllocateToPool(stream.device.index, pool)
            torch._C._cuda_releasePool(stream.device.index, pool)
        raise


_MAX_INPUTS = 64  # keys whose tensors are kept


class StaticCopies:
    """Copies of tensors, by key, at addresses that stay the same as long as the key is kept.

    A tensor that is the same object as at the last call is not copied again, so it must not have been
    changed in place.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, tuple[tuple[Tensor, ...], list[Tensor | None]]] = OrderedDict()

    def hold(self, key: Hashable, sources: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the key's tensors, filled with the values of the sources. Equal keys have equal shapes."""
        if key not in self._held:
            if len(self._held) >= _MAX_INPUTS:
                self._held.popitem(last=False)
            tensors = tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in sources)
            self._held[key] = tensors, [None] * len(tensors)
        self._held.move_to_end(key)
        tensors, last = self._held[key]
        for i, (held, source) in enumerate(zip(tensors, sources, strict=True)):
            if source is not last[i]:
                held.copy_(source, non_blocking=True)
                last[i] = source
        return tensors


_MOST_STAGED = 2**16  # bytes that CUDA copies from pageable memory without synchronising


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return host values as a tensor on `device`, copied asynchronously.

    torch.tensor(values, device=device) would synchronise with the device.
    """
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def upload_ints(values: Sequence[int], device: torch.device) -> Tensor:
    """Return integers [N] as int64 on `device`, copied asynchronously, in a third of the time of `upload`."""
    if not values:
        return torch.empty(0, dtype=torch.int64, device=device)
    host = torch.frombuffer(array("q", values), dtype=torch.int64)
    return host if device.type == "cpu" else host.to(device, non_blocking=True)


def upload_into(values: Sequence[int], target: Tensor) -> None:
    """Write a few integers [N] into `target` [N] int64 on a device, copied asynchronously."""
    target.copy_(torch.frombuffer(array("q", values), dtype=torch.int64), non_blocking=True)


def copy_to(device: torch.device, host: Tensor) -> Tensor:
    """Return a copy of a host tensor on `device`, copied asynchronously whatever its size."""
    if device.type == "cuda" and host.nbytes > _MOST_STAGED:
        host = torch.empty_like(host, pin_memory=True).copy_(host)
    return host.to(device, non_blocking=True)


def start_download(values: Tensor) -> Callable[[], list[Any]]:
    """Start to copy a tensor to the host. Return a function that waits for the copy and returns the values.

    Work launched after the copy is not waited for. Without a GPU the values are read when the function is
    called.
    """
    if not values.is_cuda:
        return values.tolist
    host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(values.device))

    def read() -> list[Any]:
        copied.synchronize()
        values: list[Any] = host.tolist()
        return values

    return read
