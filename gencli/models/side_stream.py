"""Run a draft model on a CUDA stream of its own, beside the target model on the same GPU.

The target does not wait for prompt tokens that the draft model reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch
from torch import Tensor

from gencli.core.step import StepPlan
from gencli.models.base import ModelRunner, ModelSpec

__all__ = ["CudaQueue", "Queue", "SideStreamRunner", "run_on_side_stream"]


class Queue(Protocol):
    """An ordered queue of device work that runs concurrently with the device's other work."""

    def begin(self) -> AbstractContextManager[None]:
        """Enqueue the work of this context here, after all work that the current stream already has."""
        ...

    def publish(self, result: Tensor) -> None:
        """Make the current stream wait until `result`, which this queue computes, is ready."""
        ...


class CudaQueue:
    """A CUDA stream. Memory of tensors that it allocates is reused on this stream only."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def begin(self) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def publish(self, result: Tensor) -> None:
        other = torch.cuda.current_stream(self._device)
        other.wait_stream(self._stream)
        result.record_stream(other)


class SideStreamRunner:
    """A runner whose KV lanes are only read and written in one queue.

    The current stream waits for logits only. A forward pass without wanted rows has none, so prompts are
    read concurrently with the next work. The two models must not share state that a forward pass changes.
    """

    def __init__(self, runner: ModelRunner, queue: Queue) -> None:
        self._runner, self._queue = runner, queue

    @property
    def spec(self) -> ModelSpec:
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        with self._queue.begin():
            logits = self._runner.forward(plan)
        if plan.num_rows:
            self._queue.publish(logits)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        with self._queue.begin():
            self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        with self._queue.begin():
            self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        with self._queue.begin():
            self._runner.release(lane)

    def free_cache(self) -> None:
        with self._queue.begin():
            self._runner.free_cache()


def run_on_side_stream(runner: ModelRunner) -> ModelRunner:
    """Return the runner on a CUDA stream of its own; unchanged on a device without streams."""
    device = runner.spec.device
    return SideStreamRunner(runner, CudaQueue(device)) if device.type == "cuda" else runner
