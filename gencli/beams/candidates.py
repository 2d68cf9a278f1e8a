"""The continuations of a search's beams, the most likely first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.upload import upload

__all__ = ["Candidate", "Ranked", "log_probabilities", "ranked"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam and the token that continues it; `logprob` is the sum over the whole text then."""

    beam: int
    token: int
    logprob: float


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax of each row [B, V], float64; minus infinity all over where no token is allowed.

    A row with NaN or +inf among its logits becomes NaN.
    """
    logprobs = logits.double().log_softmax(-1)
    is_empty = (logits == -torch.inf).all(-1, keepdim=True)
    return logprobs.masked_fill(is_empty, -torch.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The allowed continuations of one search, by the logprob of the whole text; iterate to get them.

    `best` holds the first of them as (logprob, flat index), on the host. Only who asks for more waits for a
    sort of `totals` [B * V]. `faulty` names the beams whose logits hold NaN or +inf.
    """

    faulty: tuple[int, ...]
    best: list[tuple[float, int]]
    totals: Tensor
    vocab_size: int

    @property
    def is_empty(self) -> bool:
        """Whether no beam has an allowed continuation."""
        return self.best[0][0] == -torch.inf

    def __iter__(self) -> Iterator[Candidate]:
        yield from self._candidates(self.best)
        if self.best[-1][0] == -torch.inf:
            return  # nothing else is allowed
        seen = upload([index for _, index in self.best], self.totals.device)
        rest = self.totals.index_fill(0, seen, -torch.inf).sort(descending=True, stable=True)
        yield from self._candidates(zip(rest.values.tolist(), rest.indices.tolist(), strict=True))

    def _candidates(self, pairs: Iterable[tuple[float, int]]) -> Iterator[Candidate]:
        for logprob, index in pairs:
            if logprob == -torch.inf:
                return
            yield Candidate(index // self.vocab_size, index % self.vocab_size, logprob)


def ranked(logprobs: Tensor, sums: Sequence[Sequence[float]], at_first: Sequence[int]) -> list[Ranked]:
    """Rank the continuations of several searches, in one transfer to the host.

    logprobs [B, V] float64 are those of the next token, for the beams of all searches in order; `sums` has
    for each search the logprobs of its beams so far, `at_first` how many candidates it is sure to look at.
    """
    _, vocab_size = logprobs.shape
    sizes = [len(beams) for beams in sums]
    before = upload([value for beams in sums for value in beams], logprobs.device, torch.float64)
    totals = [part.flatten() for part in torch.split(logprobs + before[:, None], sizes)]
    best = [part.topk(min(count, len(part))) for part, count in zip(totals, at_first, strict=True)]
    table = [logprobs.isnan().any(-1).double()]
    table += [column.double() for top in best for column in (top.values, top.indices)]
    read = iter(torch.cat(table).tolist())  # float64 holds every index
    faulty = [[beam for beam in range(size) if next(read)] for size in sizes]
    return [
        Ranked(tuple(beams), _pairs([next(read) for _ in range(2 * len(top.values))]), part, vocab_size)
        for beams, top, part in zip(faulty, best, totals, strict=True)
    ]


def _pairs(numbers: list[float]) -> list[tuple[float, int]]:
    middle = len(numbers) // 2
    return [(value, int(index)) for value, index in zip(numbers[:middle], numbers[middle:], strict=True)]
