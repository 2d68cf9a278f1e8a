"""Work of a device that is recorded once and replayed as one launch (CUDA graphs).

What is recorded is a function of static tensors: it reads and writes tensors of fixed shapes and addresses,
and nothing it launches depends on values that the host knows. Its inputs are written into those tensors
before each replay. Whoever replaces such a tensor calls `Graphs.clear`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from processors.capture import capture
from processors.machine_faults import is_out_of_memory

__all__ = ["CudaRecorder", "Graph", "Graphs", "Outputs", "Recorder", "bucket_of"]

Outputs = Tensor | tuple[Tensor, ...]

_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
_MORE_ROWS = 32  # the distance of larger buckets
_MOST_KEYS = 1024  # that are remembered; a key that is forgotten counts as new


def bucket_of(count: int) -> int:
    """Return the number of rows, at least `count`, that a step is filled up to, so that graphs are few."""
    return _ROWS[bisect_left(_ROWS, count)] if count <= _ROWS[-1] else -(-count // _MORE_ROWS) * _MORE_ROWS


class Graph(Protocol):
    """A recorded function of static tensors, and the device memory that it holds."""

    @property
    def nbytes(self) -> int:
        """The bytes of device memory that the recording added."""
        ...

    def replay(self) -> Outputs:
        """Run what was recorded; return its outputs, the same tensors each time."""
        ...


class Recorder(Protocol):
    """Records functions of static tensors on one device."""

    def record(self, run: Callable[[], Outputs]) -> Graph:
        """Return the graph of `run`, which has run before.

        No tensor has changed when this returns or raises. It raises an exception of any type where `run`
        cannot be recorded, as it waits for the device or copies from the host.
        """
        ...

    def renew(self) -> None:
        """Use other memory from now on, as none of the graphs so far will be replayed again."""
        ...


@dataclass(frozen=True, slots=True)
class _CudaGraph:
    graph: torch.cuda.CUDAGraph
    outputs: Outputs
    nbytes: int

    def replay(self) -> Outputs:
        """Launch the graph on the current stream."""
        self.graph.replay()
        return self.outputs


class CudaRecorder:
    """Records CUDA graphs on a stream of its own, all of them in one memory pool.

    Graphs of a pool share the memory of their inner tensors, so they must not run side by side. The stream
    is kept: PyTorch has a workspace of cuBLAS for each stream, up to 32 MiB, that it does not free.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, run: Callable[[], Outputs]) -> Graph:
        """Capture `run`, as Recorder.record: nothing is computed meanwhile."""
        try:
            return self._captured(run)
        except torch.OutOfMemoryError:
            pass  # outside the except block, whose traceback would keep tensors alive
        torch.cuda.empty_cache()  # during a capture the allocator gives back nothing of its reserve
        return self._captured(run)

    def renew(self) -> None:
        """Take another pool, as Recorder.renew."""
        # Graphs that were dropped may still run, and memory that is unmapped (expandable segments) waits for
        # the stream of its capture alone.
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
    """Runs functions by their keys, and records each at its second use.

    `make` returns a recorder; without it every function runs as it is. At most `most` graphs with at most
    `max_bytes` bytes are kept; the one that was not used for longest is dropped first. A key whose recording
    fails runs without a graph from then on, and all graphs are dropped; `notices` says so once, when the
    function has run without one: where it cannot either, as on a lost device, its error says more.
    """

    def __init__(
        self, make: Callable[[], Recorder] | None, *, most: int = 64, max_bytes: int = 2**30
    ) -> None:
        self._make, self._most, self._max_bytes = make, most, max_bytes
        self._recorder: Recorder | None = None
        self._known: OrderedDict[Hashable, Graph | Literal["seen", "failed"]] = OrderedDict()
        self.notices: list[str] = []
        self._fault, self._has_told = "", False  # of the first recording that failed
        self.num_recorded = 0
        self.num_replayed = 0

    @property
    def num_kept(self) -> int:
        """The number of graphs that are kept."""
        return len(self._kept())

    def like(self) -> Graphs:
        """Return graphs with a memory pool of their own and the same limits, for work on another stream."""
        return Graphs(self._make, most=self._most, max_bytes=self._max_bytes)

    @property
    def records(self) -> bool:
        """Whether anything is recorded, so that outputs are overwritten by a later call with their key."""
        return self._make is not None

    @property
    def nbytes(self) -> int:
        """The bytes of device memory that the recordings of the kept graphs added."""
        return sum(graph.nbytes for _, graph in self._kept())

    def run(self, key: Hashable, run: Callable[[], Outputs]) -> Outputs:
        """Return the outputs of `run`, a function of static tensors that the key stands for.

        The outputs may be the same tensors at each call, which the next call overwrites.
        """
        if self._make is None:
            return run()
        known = self._known.get(key)
        if known is None or known == "failed":  # the first use compiles and allocates what a graph cannot
            self._put(key, known or "seen")
            return self._plain(run)
        if known == "seen":
            made = self._record(self._make, key, run)
            if made is None:
                return self._plain(run)
            known = made
        self._known.move_to_end(key)
        self.num_replayed += 1
        return known.replay()

    def _plain(self, run: Callable[[], Outputs]) -> Outputs:
        """Run without a graph, and say once why if a recording has failed."""
        outputs = run()
        if self._fault and not self._has_told:
            notice = f"A CUDA graph could not be recorded ({self._fault}): such steps run without it."
            if notice not in self.notices:
                self.notices.append(notice)
            self._has_told = True
        return outputs

    def clear(self) -> None:
        """Drop all graphs and their memory; a key is recorded anew at its second use from now on."""
        if self._recorder is not None:
            self._recorder.renew()
        failed = [key for key, known in self._known.items() if known == "failed"]
        self._known.clear()
        for key in failed:
            self._known[key] = "failed"

    def _record(
        self, make: Callable[[], Recorder], key: Hashable, run: Callable[[], Outputs]
    ) -> Graph | None:
        """Return the graph of a key; None if it cannot be recorded."""
        fault = ""
        try:
            self._recorder = self._recorder or make()
            graph = self._recorder.record(run)
        except Exception as error:  # drivers and kernels raise exceptions of any type
            is_full = isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error)
            fault = "the memory is full" if is_full else str(error).partition("\n")[0] or type(error).__name__
        if fault:  # outside the except block, whose traceback would keep tensors alive
            self._put(key, "failed")
            self.clear()  # a full memory needs the room, and the pool may be damaged
            self._fault = self._fault or fault
            return None
        self.num_recorded += 1
        self._put(key, graph)
        self._bound()
        return graph

    def _put(self, key: Hashable, known: Graph | Literal["seen", "failed"]) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > _MOST_KEYS:
            self._known.popitem(last=False)

    def _bound(self) -> None:
        """Drop the graphs used longest ago until the others are within the limits; the newest stays."""
        kept = self._kept()
        nbytes = sum(graph.nbytes for _, graph in kept)
        while len(kept) > 1 and (len(kept) > self._most or nbytes > self._max_bytes):
            key, graph = kept.pop(0)
            nbytes -= graph.nbytes
            del self._known[key]

    def _kept(self) -> list[tuple[Hashable, Graph]]:
        return [(key, known) for key, known in self._known.items() if not isinstance(known, str)]
