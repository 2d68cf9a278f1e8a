"""Runners over KV lanes: tokens in each lane, the checks of a step plan, and where fed tokens go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.model_runner import Lanes, ModelSpec

STEP = 256  # tokens; the capacity of lanes is a multiple of it


class ContractError(AssertionError):
    """The caller broke the runner's contract: a bug in gencli, never a fault of its input."""


class LaneLengths:
    """Length in tokens of each lane; rejects feeds that do not match.

    `num_ids` is the number of token ids of the model, `context` the maximum number of tokens in a lane.
    """

    def __init__(self, *, max_lanes: int, context: int, num_ids: int) -> None:
        self._lengths, self.context, self._num_ids = [0] * max_lanes, context, num_ids

    def like(self) -> LaneLengths:
        """Return lengths of as many empty lanes, with the same limits."""
        return LaneLengths(max_lanes=len(self), context=self.context, num_ids=self._num_ids)

    def __getitem__(self, lane: int) -> int:
        self._require_lane(lane)
        return self._lengths[lane]

    def __len__(self) -> int:
        return len(self._lengths)

    def held(self) -> list[tuple[int, int]]:
        """Return (lane, tokens) of every lane that is not empty."""
        return [(lane, length) for lane, length in enumerate(self._lengths) if length]

    def check(self, plan: StepPlan) -> None:
        """Raise ContractError for a plan that does not fit the lanes, ModelError for an unknown token id."""
        self._require(bool(plan.feeds), "a plan needs at least one feed")
        lanes = [feed.lane for feed in plan.feeds]
        self._require(len(set(lanes)) == len(lanes), f"a lane is fed twice in one step: {sorted(lanes)}")
        lengths, num_lanes = self._lengths, len(self._lengths)
        for feed in plan.feeds:
            lane, start, tokens, num_logits, _, _ = feed
            count = len(tokens)
            if not (
                0 <= lane < num_lanes
                and start == lengths[lane]
                and 0 <= num_logits <= count > 0
                and start + count <= self.context
                and min(tokens) >= 0
                and max(tokens) < self._num_ids
            ):
                self._refuse(feed)

    def advance(self, plan: StepPlan) -> None:
        for feed in plan.feeds:
            self._lengths[feed.lane] = feed.start + len(feed.tokens)

    def check_truncate(self, lane: int, length: int) -> None:
        """Raise ContractError unless the lane holds at least `length` tokens."""
        held = self[lane]
        self._require(0 <= length <= held, f"lane {lane} holds {held} tokens and cannot keep {length}")

    def truncate(self, lane: int, length: int) -> None:
        self.check_truncate(lane, length)
        self._lengths[lane] = length

    def check_fork(self, source: int, target: int) -> None:
        """Raise ContractError unless these are two different lanes."""
        self._require(source != target, f"lane {source} cannot be forked onto itself")
        for lane in (source, target):
            self._require_lane(lane)

    def fork(self, source: int, target: int) -> None:
        self.check_fork(source, target)
        self._lengths[target] = self[source]

    def release(self, lane: int) -> None:
        """Empty the lane; releasing an empty lane is allowed."""
        self.truncate(lane, 0)

    def _refuse(self, feed: Feed) -> None:
        held, count = self[feed.lane], len(feed.tokens)
        self._require(count > 0, f"lane {feed.lane} is fed no token")
        self._require(
            feed.start == held, f"lane {feed.lane} holds {held} tokens, the feed starts at {feed.start}"
        )
        self._require(
            0 <= feed.num_logits <= count,
            f"lane {feed.lane}: {feed.num_logits} rows wanted of {count} fed tokens",
        )
        self._require(
            held + count <= self.context,
            f"lane {feed.lane}: {held} + {count} tokens exceed the context of {self.context}",
        )
        unknown = low if (low := min(feed.tokens)) < 0 else max(feed.tokens)
        raise ModelError(
            f"Token id {unknown} is unknown to the model, which reads 0..{self._num_ids - 1}",
            hint="Does the tokenizer belong to this model?",
        )

    def _require_lane(self, lane: int) -> None:
        self._require(
            0 <= lane < len(self._lengths), f"lane {lane} is not one of 0..{len(self._lengths) - 1}"
        )

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise ContractError(message)


def cells_of(feeds: Iterable[Feed]) -> list[tuple[int, int]]:
    """Return (lane, position) of every fed token, in feed order."""
    return [(feed.lane, feed.start + index) for feed in feeds for index in range(len(feed.tokens))]


def wanted_of(feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens whose logits are needed."""
    wanted: list[int] = []
    end = 0
    for feed in feeds:
        end += len(feed.tokens)
        wanted += range(end - feed.num_logits, end)
    return wanted


def fed_to(lanes: Collection[int], feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens fed to these lanes."""
    owners = [feed.lane for feed in feeds for _ in feed.tokens]
    return [index for index, lane in enumerate(owners) if lane in lanes]


def room_for(feeds: Iterable[Feed]) -> tuple[int, int]:
    """Return the size of a cache, (lanes, tokens), that holds all feeds of a step."""
    feeds = tuple(feeds)
    return max(feed.lane for feed in feeds) + 1, max(feed.start + len(feed.tokens) for feed in feeds)


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
        """As `forward`, with the tokens `ids` [N] of the device (see AheadRunner).

        Its lanes say with `holds` whether their buffers hold the feeds without growing, and take `ids` too.
        """
        lanes: Any = self._lanes
        self._lengths.check(plan)
        if not lanes.holds(plan.feeds):
            return None
        with torch.inference_mode():
            logits: Tensor = lanes.forward(plan.feeds, ids=ids)
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
        self._lengths.check_fork(source, target)
        with torch.inference_mode():
            self._lanes.release(target)
            self._lanes.fork(source, target)
        self._lengths.fork(source, target)

    def release(self, lane: int) -> None:
        with torch.inference_mode():
            self._lanes.release(lane)
        self._lengths.release(lane)

    def free_cache(self) -> None:
        self._lanes.free_cache()
        if self._spec.device.type == "cuda":
            torch.cuda.empty_cache()
