"""The stage `adaptive_p`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.catalog.feedback import AdaptivePParams
from processors.kernels.blocks import row_parts
from processors.kernels.sums import row_sums
from processors.rows import Rows
from processors.stages.feedback import Feedback
from processors.stages.tokens import LOWEST
from processors.stages.truncation import mass

__all__ = ["AdaptiveP"]

_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3  # as in llama.cpp


class AdaptiveP(Feedback[AdaptivePParams]):
    """x = 5 - 10 u^2 / (1 + u), u = |p - t| / 0.3, t = 2 target - a within [0, 1].

    The slot's number is a, the moving average of the probabilities p of drawn tokens before this stage: a =
    target at first, then a = (1 - decay) p + decay a after each token.
    """

    name = "adaptive_p"
    Params = AdaptivePParams

    def first(self, params: AdaptivePParams) -> float:
        """Return the initial average, `target`."""
        return params.target

    def note(self, number: float) -> str:
        """Return the note of a row: the average probability of the drawn tokens."""
        return f"drawn on average {number:.3f}"

    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the new logits [A, V], and ln of the total mass before the stage [A]."""
        wanted = (2 * self.columns.exact("target", rows) - numbers).clamp_(0, 1)[:, None]
        out, totals = torch.empty_like(logits), []
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        for part in row_parts(logits):
            some, top = logits[part], peak[part]
            p = mass(some, top)
            total = row_sums(p)
            away = p.div_(total * _WIDTH).sub_(wanted[part] / _WIDTH).abs_()
            new = (away * away).div_(away.add_(1)).mul_(-_SHARPNESS).add_(_PEAK)
            is_left = torch.gt(some, -math.inf, out=torch.empty_like(some)).sum(1, keepdim=True) < 2
            torch.where((some == -math.inf) | is_left, some, new.float(), out=out[part])
            totals.append(top + total.log())
        return out, torch.cat(totals).squeeze(1)

    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return the averages [N] after tokens with these log-probabilities [N]."""
        decay = self.columns.at("decay", slots)
        return decay * numbers + (1 - decay) * log_probability.exp()
