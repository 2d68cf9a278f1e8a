"""Runner of a model on KV lanes: checks each step plan, counts lane lengths, calls the lanes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, cast

import torch
from torch import Tensor

from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.base import ModelSpec
from gencli.models.kv.lengths import LaneLengths

__all__ = ["AheadLanes", "LaneRunner", "Lanes"]


class Lanes(Protocol):
    """KV lanes of one model. The runner checks and counts their lengths."""

    can_rollback: bool

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order."""
        ...

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane to `length` tokens, fewer than it holds."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to an empty one."""
        ...

    def release(self, lane: int) -> None:
        """Empty the lane."""
        ...

    def free_cache(self) -> None:
        """Free the memory of the lanes; all of them must be empty."""
        ...


class AheadLanes(Protocol):
    """Lanes that take tokens from the device."""

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds of one token without growing; no lane is empty."""
        ...

    def forward(self, feeds: tuple[Feed, ...], *, ids: Tensor) -> Tensor:
        """As Lanes.forward, for one token a feed: `ids` [N] int64 in place of those of the feeds."""
        ...


class LaneRunner(ABC):
    """ModelRunner over lanes. `lengths` are those of the lanes."""

    def __init__(self, spec: ModelSpec, lanes: Lanes, lengths: LaneLengths) -> None:
        self._spec, self._lanes, self._lengths = spec, lanes, lengths

    @abstractmethod
    def first_layers(self, count: int | None = None, *, max_lanes: int) -> LaneRunner:
        """Return a runner of the first `count` layers (default: half of them), sharing the weights.

        Raises ModelError for a model without a plain row of layers, or a count outside 1..num_layers - 1.
        """

    @property
    def spec(self) -> ModelSpec:
        """Properties of the loaded model."""
        return self._spec

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed every lane of the plan; return the wanted logits [plan.num_rows, V] in feed order.

        After an exception the lanes of the plan must be released before they are fed again.
        """
        self._lengths.check(plan)
        with torch.inference_mode():
            logits = self._lanes.forward(plan.feeds)
        self._lengths.advance(plan)
        # An inference tensor refuses in-place edits outside inference mode; a copy does not.
        return logits if torch.is_inference_mode_enabled() else logits.clone()

    def forward_ahead(self, plan: StepPlan, ids: Tensor) -> Tensor | None:
        """As `forward`, with the tokens `ids` [N] of the device (see AheadRunner); takes AheadLanes."""
        lanes = cast(AheadLanes, self._lanes)
        self._lengths.check(plan)
        if not lanes.holds(plan.feeds):
            return None
        with torch.inference_mode():
            logits = lanes.forward(plan.feeds, ids=ids)
        self._lengths.advance(plan)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane. Raises ModelError if it gets shorter and the model cannot roll back."""
        self._lengths.check_truncate(lane, length)
        if length == self._lengths[lane]:
            return
        if not self._lanes.can_rollback:
            raise ModelError(
                f"{self._spec.name} cannot forget tokens it has read: its layers keep a running state",
                hint="Run it without drafts",
            )
        with torch.inference_mode():
            self._lanes.truncate(lane, length)
        self._lengths.truncate(lane, length)

    def fork(self, source: int, target: int) -> None:
        """Copy lane `source` to lane `target`."""
        self._lengths.check_fork(source, target)
        with torch.inference_mode():
            self._lanes.release(target)
            self._lanes.fork(source, target)
        self._lengths.fork(source, target)

    def release(self, lane: int) -> None:
        """Empty the lane."""
        with torch.inference_mode():
            self._lanes.release(lane)
        self._lengths.release(lane)

    def free_cache(self) -> None:
        """Free the memory of the lanes; all of them must be empty."""
        self._lanes.free_cache()
        if self._spec.device.type == "cuda":
            torch.cuda.empty_cache()
