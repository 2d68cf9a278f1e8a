"""A model that works beside another one on the same GPU: what it reads, the other need not wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch
from torch import Tensor

from gencli.core.step import StepPlan
from gencli.models.base import ModelRunner, ModelSpec

__all__ = ["AsideRunner", "CudaQueue", "Queue", "aside"]


class Queue(Protocol):
    """Work that a device does in order, beside what else it is asked for."""

    def begin(self) -> AbstractContextManager[None]:
        """What is asked for within is done in this queue, behind all that was asked for before."""
        ...

    def hand_over(self, result: Tensor) -> None:
        """What is asked for elsewhere from now on is done behind the result, which came from this queue."""
        ...


class CudaQueue:
    """A stream of its own. The memory of tensors made within is handed out again within alone."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def begin(self) -> Iterator[None]:
        """See Queue."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def hand_over(self, result: Tensor) -> None:
        """See Queue."""
        other = torch.cuda.current_stream(self._device)
        other.wait_stream(self._stream)
        result.record_stream(other)


class AsideRunner:
    """Another runner, whose lanes are touched in a queue of their own only.

    Logits are waited for, which a forward without wanted rows has none of: prompts are read beside whatever
    comes next. The two models must not share what a forward changes.
    """

    def __init__(self, runner: ModelRunner, queue: Queue) -> None:
        self._runner, self._queue = runner, queue

    @property
    def spec(self) -> ModelSpec:
        """See ModelRunner."""
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        """See ModelRunner."""
        with self._queue.begin():
            logits = self._runner.forward(plan)
        if plan.num_rows:
            self._queue.hand_over(logits)
        return logits

    def keep(self, lane: int, length: int) -> None:
        """See ModelRunner."""
        with self._queue.begin():
            self._runner.keep(lane, length)

    def fork(self, source: int, target: int) -> None:
        """See ModelRunner."""
        with self._queue.begin():
            self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        """See ModelRunner."""
        with self._queue.begin():
            self._runner.release(lane)

    def trim(self) -> None:
        """See ModelRunner."""
        with self._queue.begin():
            self._runner.trim()


def aside(runner: ModelRunner) -> ModelRunner:
    """The runner beside others on its GPU; as it is on a device that does one thing after the other."""
    device = runner.spec.device
    return AsideRunner(runner, CudaQueue(device)) if device.type == "cuda" else runner
