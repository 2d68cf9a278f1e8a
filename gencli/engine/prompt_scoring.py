"""The scores of one request's prompt: which positions are left, and what they came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite

from gencli.core.events import PromptScores, TokenLogprobs
from gencli.core.request import Request


@dataclass(slots=True, eq=False)
class PromptScoring:
    """Scores of the prompt of one request.

    `next`: the first position not scored yet; it needs the logits of the position before. `is_only`: nothing
    is generated, so the last prompt token is not fed.
    """

    request: Request
    next: int = field(init=False)
    is_reported: bool = False
    _scores: list[TokenLogprobs | None] = field(init=False)

    def __post_init__(self) -> None:
        self.next = self.request.score_from
        self._scores = [None] * len(self.request.prompt_ids)

    @property
    def is_only(self) -> bool:
        """Whether the request generates nothing."""
        return self.request.limits.max_tokens == 0

    @property
    def is_complete(self) -> bool:
        """Whether every position has its score."""
        return self.next >= len(self._scores)

    @property
    def first_read(self) -> int:
        """The first position whose logits are needed; tokens before it may come from a cache."""
        return min(self.next, len(self._scores)) - 1

    def num_rows(self, start: int, end: int) -> int:
        """Number of positions to score whose logits come from feeding the tokens `start` to `end`."""
        end = min(end, len(self._scores) - 1)
        return 0 if self.is_complete else max(0, end - max(start, self.first_read))

    @property
    def first_unsound(self) -> int | None:
        """The first position whose logits had NaN or +inf; None if there is none."""
        for position, entry in enumerate(self._scores):
            if entry and not isfinite(entry.chosen.logprob) and not entry.chosen.banned_by:
                return position
        return None

    def take(self, entries: list[TokenLogprobs]) -> None:
        """Take the scores of the next positions."""
        self._scores[self.next : self.next + len(entries)] = entries
        self.next += len(entries)

    def report(self) -> Iterator[PromptScores]:
        """Yield the event of a complete prompt, once."""
        if self.is_complete and not self.is_reported:
            self.is_reported = True
            yield PromptScores(self.request.id, tuple(self._scores))


def scoring_of(request: Request, sample: int) -> PromptScoring | None:
    """Return the scoring of a request with `prompt_logprobs`; only its first sample has one."""
    return PromptScoring(request) if request.prompt_logprobs is not None and sample == 0 else None
