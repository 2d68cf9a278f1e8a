"""Number of tokens in each KV lane, and the checks every runner makes on a step plan."""

from __future__ import annotations

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError

STEP = 256  # tokens; the capacity of lanes is a multiple of it


class ContractError(AssertionError):
    """The caller broke the runner's contract: a bug in gencli, never a fault of its input."""


class LaneLengths:
    """Length in tokens of each lane; rejects feeds that do not match.

    `num_ids` is the number of token ids of the model, `context` the maximum number of tokens in a lane.
    """

    def __init__(self, *, max_lanes: int, context: int, num_ids: int) -> None:
        self._lengths = [0] * max_lanes
        self._context = context
        self._num_ids = num_ids

    @property
    def context(self) -> int:
        return self._context

    def like(self) -> LaneLengths:
        """Return lengths of as many empty lanes, with the same limits."""
        return LaneLengths(max_lanes=len(self), context=self._context, num_ids=self._num_ids)

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
                and start + count <= self._context
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
            held + count <= self._context,
            f"lane {feed.lane}: {held} + {count} tokens exceed the context of {self._context}",
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
