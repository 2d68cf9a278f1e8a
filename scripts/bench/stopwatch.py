"""Clocks for calls on a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from processors.graphs import capture

_Call = Callable[[], object]


class Stopwatch(Protocol):
    """Interface that measures how long calls take."""

    def us(self, call: _Call, *, is_graph: bool = True) -> float:
        """Return the median microseconds of a call; as a captured graph, if it can be captured."""
        ...

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        ...


class HostStopwatch:
    """Times synchronous calls, as on a CPU."""

    def us(self, call: _Call, *, is_graph: bool = True) -> float:
        """Return the microseconds of a call."""
        call()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    def wait(self) -> None:
        """Do nothing: calls are synchronous."""


class CudaStopwatch:
    """Times calls by events of the device, `calls` consecutive ones in each of `rounds`."""

    def __init__(self, device: torch.device, *, calls: int = 20, rounds: int = 7) -> None:
        self._device, self._calls, self._rounds = device, calls, rounds

    def us(self, call: _Call, *, is_graph: bool = True) -> float:
        """Return the microseconds of a call; run eagerly if it cannot be captured."""
        for _ in range(3):  # the first call also compiles
            call()
        self.wait()
        run = (self._recorded(call) if is_graph else None) or (lambda: self._repeat(call))
        run()
        times: list[float] = []
        event: Any = torch.cuda.Event  # untyped
        for _ in range(self._rounds):
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / self._calls)
        return statistics.median(times)

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        torch.cuda.synchronize(self._device)

    def _repeat(self, call: _Call) -> None:
        for _ in range(self._calls):
            call()

    def _recorded(self, call: _Call) -> Callable[[], None] | None:
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        try:
            with capture(graph, stream, torch.cuda.graph_pool_handle()):
                self._repeat(call)
        except RuntimeError:
            self.wait()
            return None
        return graph.replay
