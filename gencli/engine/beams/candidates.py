"""Continuations of the beams of a search, most likely first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.upload import upload

__all__ = ["Candidate", "Ranked", "Ranking", "log_probabilities", "rank"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam and its next token; `logprob` is the log-probability of the whole text with it."""

    beam: int
    token: int
    logprob: float


def log_probabilities(logits: Tensor) -> Tensor:
    """Return the log-softmax of each row [B, V], float64; minus infinity in a row without allowed tokens.

    A row with NaN or +inf becomes NaN.
    """
    logprobs = logits.double().log_softmax(-1)
    is_empty = (logits == -torch.inf).all(-1, keepdim=True)
    return logprobs.masked_fill(is_empty, -torch.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Iterable of the allowed continuations of one search, by falling log-probability of the whole text.

    `best` are the first ones as (logprob, flat index), on the host. Iterating further sorts `totals` [B * V].
    `faulty` are the beams whose logits have NaN or +inf.
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


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The best continuations of several searches, on the device; `packed` [N] float64 goes to the host."""

    totals: tuple[Tensor, ...]  # of each search: log-probabilities of the whole text [B * V]
    sizes: tuple[int, ...]  # number of beams of each search
    num_top: tuple[int, ...]
    vocab_size: int
    packed: Tensor

    def read(self, values: Sequence[float]) -> list[Ranked]:
        """Return the continuations of each search. `values`: the numbers of `packed`."""
        numbers = iter(values)
        faulty = [[beam for beam in range(size) if next(numbers)] for size in self.sizes]
        return [
            Ranked(tuple(beams), _pairs([next(numbers) for _ in range(2 * count)]), part, self.vocab_size)
            for beams, count, part in zip(faulty, self.num_top, self.totals, strict=True)
        ]


def rank(logprobs: Tensor, sums: Sequence[Sequence[float]], num_top: Sequence[int]) -> Ranking:
    """Rank the continuations of several searches.

    `logprobs` [B, V] float64: log-probabilities of the next token, for the beams of all searches in order.
    `sums`: log-probabilities of each search's beams so far. `num_top`: number of continuations of each search
    that are copied to the host.
    """
    _, vocab_size = logprobs.shape
    sizes = tuple(len(beams) for beams in sums)
    before = upload([value for beams in sums for value in beams], logprobs.device, torch.float64)
    totals = tuple(part.flatten() for part in torch.split(logprobs + before[:, None], [*sizes]))
    best = [part.topk(min(count, len(part))) for part, count in zip(totals, num_top, strict=True)]
    table = [logprobs.isnan().any(-1).double()]
    table += [column.double() for top in best for column in (top.values, top.indices)]
    counts = tuple(len(top.values) for top in best)
    return Ranking(totals, sizes, counts, vocab_size, torch.cat(table))  # float64 holds every index


def _pairs(numbers: list[float]) -> list[tuple[float, int]]:
    middle = len(numbers) // 2
    return [(value, int(index)) for value, index in zip(numbers[:middle], numbers[middle:], strict=True)]
