"""Tensor-parallel model over several processes: the first process leads, the others follow.

Only the leader has an engine: it schedules, samples and writes. It broadcasts every call to its runner, and
each follower makes the same call on its part of the model. So a clock, a signal or a file in one process
cannot make the processes diverge.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gencli.core.step import StepPlan
from gencli.errors import ModelError
from gencli.models.base import ModelRunner, ModelSpec

__all__ = ["Leader", "follow"]

_Call = tuple[str, tuple[Any, ...]]
_TIMEOUT = timedelta(days=365)  # a chat may wait for its next turn


class Leader:
    """Runner of the first process. Broadcasts every call to the others before making it."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self._group = runner, dist.new_group(backend="gloo", timeout=_TIMEOUT)
        atexit.register(self.close)

    @property
    def spec(self) -> ModelSpec:
        """Properties of the loaded model."""
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed the plan; return the wanted logits [plan.num_rows, V] in feed order."""
        self._broadcast("forward", plan)
        return self._runner.forward(plan)

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to its first `length` tokens."""
        self._broadcast("truncate", lane, length)
        self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        """Copy lane `source` to lane `target`."""
        self._broadcast("fork", source, target)
        self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        self._broadcast("release", lane)
        self._runner.release(lane)

    def free_cache(self) -> None:
        """Free the memory of the lanes."""
        self._broadcast("free_cache")
        self._runner.free_cache()

    def close(self) -> None:
        """End the other processes."""
        with suppress(RuntimeError):  # they have ended already
            self._broadcast("close")
            dist.destroy_process_group()

    def _broadcast(self, name: str, *arguments: Any) -> None:
        dist.broadcast_object_list([(name, arguments)], src=0, group=self._group)


def follow(runner: ModelRunner) -> None:
    """Make the leader's calls on `runner` until it closes. Raises ModelError if the leader has died."""
    group = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    while True:
        calls: list[_Call | None] = [None]
        try:
            dist.broadcast_object_list(calls, src=0, group=group)
        except RuntimeError as error:
            raise ModelError("The first process is gone") from error
        assert calls[0] is not None
        name, arguments = calls[0]
        if name == "close":
            dist.destroy_process_group()
            return
        with suppress(ModelError), torch.inference_mode():  # the leader reports the error
            getattr(runner, name)(*arguments)
