"""A model split over processes: the first one leads, the others do what it does.

Only the leader has an engine: it schedules, draws and writes. What it asks of its runner is told to the
others, each of which makes the same call on its part of the model. So they cannot go different ways, whatever
a clock, a signal or a file does to one of them.
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
_PATIENCE = timedelta(days=365)  # a chat may wait for its next turn


class Leader:
    """The runner of the first process. Every call is told to the others before it is made here."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self._group = runner, dist.new_group(backend="gloo", timeout=_PATIENCE)
        atexit.register(self.close)

    @property
    def spec(self) -> ModelSpec:
        """The loaded model's fixed properties."""
        return self._runner.spec

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed every lane of the plan; return the wanted logits [plan.num_rows, V] in feed order."""
        self._tell("forward", plan)
        return self._runner.forward(plan)

    def truncate(self, lane: int, length: int) -> None:
        """Forget all but the first `length` tokens of the lane."""
        self._tell("truncate", lane, length)
        self._runner.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        """Make `target` hold what `source` holds."""
        self._tell("fork", source, target)
        self._runner.fork(source, target)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        self._tell("release", lane)
        self._runner.release(lane)

    def free_cache(self) -> None:
        """Give back the memory that lanes held."""
        self._tell("free_cache")
        self._runner.free_cache()

    def close(self) -> None:
        """Let the others end."""
        with suppress(RuntimeError):  # they are gone already
            self._tell("close")
            dist.destroy_process_group()

    def _tell(self, name: str, *arguments: Any) -> None:
        dist.broadcast_object_list([(name, arguments)], src=0, group=self._group)


def follow(runner: ModelRunner) -> None:
    """Do what the leader does, until it ends. Raises ModelError if the leader is gone."""
    group = dist.new_group(backend="gloo", timeout=_PATIENCE)
    while True:
        told: list[_Call | None] = [None]
        try:
            dist.broadcast_object_list(told, src=0, group=group)
        except RuntimeError as error:
            raise ModelError("The first process is gone") from error
        assert told[0] is not None
        name, arguments = told[0]
        if name == "close":
            dist.destroy_process_group()
            return
        with suppress(ModelError), torch.inference_mode():  # the leader says what is wrong
            getattr(runner, name)(*arguments)
