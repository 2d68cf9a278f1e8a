"""The stage `mirostat`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.catalog.feedback import MirostatParams
from processors.kernels.blocks import drop_below, row_parts
from processors.kernels.sums import row_sums
from processors.rows import Rows
from processors.stages.best import best, cut
from processors.stages.feedback import Feedback
from processors.stages.tokens import LOWEST
from processors.stages.truncation import mass, rounded_up

__all__ = ["Mirostat"]

_LN2 = math.log(2)
_MOST = 100  # largest logits from which version 1 estimates Zipf's exponent


class Mirostat(Feedback[MirostatParams]):
    """Truncate so that the surprise of the drawn tokens stays at tau bits (Basu et al. 2021).

    The slot's number is mu: 2 tau at first, then mu - eta (surprise - tau) after each token, the surprise
    -log2 p taken after truncation. Version 2 drops tokens with a surprise above mu; version 1 keeps the
    number of tokens whose cross-entropy would be mu bits if they followed Zipf's law.
    """

    name = "mirostat"
    Params = MirostatParams

    def first(self, params: MirostatParams) -> float:
        """Return the initial mu, 2 tau."""
        return 2 * params.tau

    def note(self, number: float) -> str:
        """Return the note of a row: mu in bits."""
        return f"mu {number:.2f} bits"

    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the truncated logits [A, V], and ln of the mass that is left [A]."""
        versions = self.columns.known("version", rows)
        is_first = self.columns.exact("version", rows)[:, None] == 1
        out, totals = logits.clone(), []
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        for part in row_parts(logits):
            some, top, mu = logits[part], peak[part], numbers[part, None]
            masses = mass(some, top)
            threshold, room = _by_surprise(masses, top, mu)
            if 1 in versions:
                by_count = _by_count(some, mu)
                threshold = torch.where(is_first[part], by_count[0], threshold)
                room = torch.where(is_first[part], by_count[1], room)
            drop_below(out[part], threshold, room)
            left = row_sums(masses.masked_fill_(out[part] == -math.inf, 0))
            totals.append(top + left.log())
        return out, torch.cat(totals).squeeze(1)

    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return mu [N] after tokens with these log-probabilities [N]; unchanged by an impossible token."""
        tau, eta = self.columns.at("tau", slots), self.columns.at("eta", slots)
        after = numbers - eta * (-log_probability / _LN2 - tau)
        return torch.where(log_probability == -math.inf, numbers, after)


def _by_surprise(masses: Tensor, peak: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest logit with a surprise of at most mu [A, 1], and how many of its ties stay [A, 1].

    If every token has a larger surprise, the first of the most likely tokens stays.
    """
    threshold = peak + row_sums(masses).log() - mu * _LN2
    is_one = threshold > peak
    return rounded_up(torch.where(is_one, peak, threshold)), torch.where(is_one, 1, masses.shape[1])


def _by_count(logits: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k-th largest logit, and how many of its ties stay; all [A, 1]."""
    count = _zipf_count(best(logits, _MOST), mu, logits.shape[1])
    most = logits.shape[1] if logits.is_cuda else int(count.max())
    return cut(best(logits, most), count)


def _zipf_count(ranked: Tensor, mu: Tensor, width: int) -> Tensor:
    """Return k [A, 1] int64 for the largest logits [A, N] of rows of `width` ids, by the paper's formula."""
    ranked = ranked.double()
    gaps = ranked[:, :-1] - ranked[:, 1:]
    steps = torch.arange(1, ranked.shape[1], dtype=torch.float64, device=ranked.device)
    steps = ((steps + 1) / steps).log()
    is_known = ranked[:, 1:] > -math.inf
    squares = row_sums(is_known * steps.square())
    s = row_sums(torch.where(is_known, gaps, 0.0) * steps) / squares
    rest = s - 1
    ratio = torch.where(rest == 0, 1 / math.log(max(width, 2)), rest / -torch.expm1(-rest * math.log(width)))
    size = ((mu * _LN2 + ratio.log()) / s).clamp(max=math.log(width)).exp()
    return size.nan_to_num(nan=1.0).floor().clamp(1, width).long()
