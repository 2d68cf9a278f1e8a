"""`PrefixLanes`: the tokens in the KV lanes of one model, and prefixes that lanes copy from each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gencli.core.prefixes import is_worth_copying, shared_length
from gencli.models.base import ModelRunner

__all__ = ["PrefixLane", "PrefixLanes"]


class PrefixLane:
    """A KV lane and its `tokens`, which may be those of a text that has ended; `salt` is its request's."""

    def __init__(self, runner: ModelRunner, number: int) -> None:
        self.number, self.tokens, self.salt = number, list[int](), ""
        self._runner = runner

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Note that the model was fed more tokens."""
        self.tokens += tokens

    def truncate(self, length: int) -> None:
        """Truncate to the first `length` tokens; empty the lane if the model cannot roll back."""
        if length >= len(self.tokens):
            return
        if self._runner.spec.can_rollback:
            self._runner.truncate(self.number, length)
            del self.tokens[length:]
        else:
            self.clear()

    def copy(self, other: PrefixLane, length: int) -> None:
        """Copy the first `length` tokens of another lane of the same model."""
        self._runner.fork(other.number, self.number)
        self.tokens = [*other.tokens]
        self.truncate(length)

    def clear(self) -> None:
        """Empty the lane."""
        self._runner.release(self.number)
        self.tokens.clear()


class PrefixLanes:
    """The lanes of a companion model or a draft model, by number. Each serves the slot that it is named for.

    A lane keeps its tokens when its text ends, as a prefix cache. The target's lanes are chosen by the
    scheduler instead (see PrefixCache).
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self._lanes: dict[int, PrefixLane] = {}

    def __getitem__(self, number: int) -> PrefixLane:
        """Return a lane. Its first use empties it: another engine may have used the model."""
        if number not in self._lanes:
            self._lanes[number] = lane = PrefixLane(self.runner, number)
            lane.clear()
        return self._lanes[number]

    def reuse(self, lane: PrefixLane, text: Sequence[int], salt: str = "") -> None:
        """Leave the longest cached prefix of `text` in a lane: its own, or a copy of another lane's.

        Lanes of another salt share nothing.
        """
        wanted = [*text]
        own = shared_length(lane.tokens, wanted) if lane.salt == salt else 0
        lane.salt = salt
        shared, best = max(
            ((shared_length(other.tokens, wanted), other) for other in self._others(lane)),
            key=lambda pair: pair[0],
            default=(0, lane),
        )
        if shared > own and is_worth_copying(shared, len(wanted)):
            lane.copy(best, shared)
        else:
            lane.truncate(own)

    def clear(self) -> None:
        """Empty all lanes."""
        for lane in self._lanes.values():
            lane.clear()
        self._lanes.clear()

    def _others(self, lane: PrefixLane) -> Iterator[PrefixLane]:
        """Yield the other lanes; none if the model cannot roll back."""
        if self.runner.spec.can_rollback:
            others = (other for other in self._lanes.values() if other is not lane)
            yield from (other for other in others if other.salt == lane.salt)
