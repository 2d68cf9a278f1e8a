"""The continuations of a search's beams, the most likely first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.upload import upload

__all__ = ["Candidate", "log_probabilities", "ranked"]


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


def ranked(logprobs: Tensor, sums: Sequence[float], *, at_first: int) -> Iterator[Candidate]:
    """All continuations that are allowed, by the logprob of the whole text.

    logprobs [B, V] float64 are those of the next token, sums [B] those of the beams so far. The first
    `at_first` are looked up at little cost; behind them everything is sorted.
    """
    totals = (logprobs + upload(sums, logprobs.device, torch.float64)[:, None]).flatten()
    width = logprobs.shape[1]
    best = totals.topk(min(at_first, len(totals)))
    seen = best.indices.tolist()
    yield from _candidates(best.values.tolist(), seen, width)
    rest = totals.index_fill(0, best.indices, -torch.inf).sort(descending=True, stable=True)
    yield from _candidates(rest.values.tolist(), rest.indices.tolist(), width)


def _candidates(values: list[float], places: list[int], width: int) -> Iterator[Candidate]:
    for value, place in zip(values, places, strict=True):
        if value == -torch.inf:
            return
        yield Candidate(place // width, place % width, value)
