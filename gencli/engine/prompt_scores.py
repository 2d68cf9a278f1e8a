"""Scores of prompt tokens: which positions a request still has to score, and their log-probabilities.

Positions are scored in slices: a step computes logits for at most `slice_rows` prompt positions, so the
logits of a whole prompt [T, V] never exist at once. A position to score is always fed to the model, even if
the prefix cache holds its keys and values, because the cache has no logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor

from gencli.core.events import PromptScores, TokenLogprobs
from gencli.core.request import Feed, Request
from gencli.engine.logprobs import Measured, best_ids, measure
from processors.upload import upload

__all__ = ["PromptScoring", "Scored", "scoring_of", "slice_rows", "split_scores"]

_CELLS = 2**24  # logits of prompt positions in a step: 64 MiB in float32
_MOST_ROWS = 512


def slice_rows(vocab_size: int) -> int:
    """Return the limit of prompt positions scored in a step: 2**24 / V, but 16 to 512."""
    return min(_MOST_ROWS, max(16, _CELLS // vocab_size))


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
        return (
            0 if self.is_complete else max(0, min(end, len(self._scores) - 1) - max(start, self.first_read))
        )

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


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Log-probabilities of prompt positions on the device, and how many belong to each scoring."""

    measured: Measured
    taken: tuple[tuple[PromptScoring, int], ...]

    def take(self, values: Items[Items[float]]) -> None:
        """Give the scorings their entries. `values`: the numbers of `measured.packed`."""
        entries = iter(self.measured.read(values))
        for scoring, count in self.taken:
            scoring.take([next(entries) for _ in range(count)])


def split_scores(
    feeds: tuple[Feed, ...], scorings: list[PromptScoring | None], own: Tensor
) -> tuple[Tensor, Scored]:
    """Measure the scored rows of own [R, V]; return the other rows, and the measurements."""
    places, kept, targets, counts = list[int](), list[int](), list[int](), list[int]()
    row, taken = 0, list[tuple[PromptScoring, int]]()
    for feed, scoring in zip(feeds, scorings, strict=True):
        end = row + feed.num_scored
        if scoring is not None and feed.num_scored:
            places += range(row, end)
            targets += scoring.request.prompt_ids[scoring.next : scoring.next + feed.num_scored]
            counts += [scoring.request.prompt_logprobs or 0] * feed.num_scored
            taken.append((scoring, feed.num_scored))
        kept += range(end, row + feed.num_logits)
        row += feed.num_logits
    raw = own if not kept else own.index_select(0, upload(places, own.device))
    rest = own[:0] if not kept else own.index_select(0, upload(kept, own.device))
    return rest, Scored(_measured(raw.float(), targets, counts), tuple(taken))


def _measured(raw: Tensor, targets: list[int], counts: list[int]) -> Measured:
    """Measure the target ids [A] under raw logits [A, V] float32."""
    top, chosen = best_ids(raw, max(counts)), upload(targets, raw.device, torch.int64)
    gone = (raw == -torch.inf).gather(1, torch.cat([chosen[:, None], top], dim=1))
    bans = torch.where(gone, 0, -1)
    return Measured(measure(raw, raw, chosen, top, (bans[:, 0], bans[:, 1:])), counts, ("model",))
