"""Verification of draft tokens: accept a prefix of the drafts, then add one token.

`verify` accepts a draft that equals the sampled token; `above_threshold` and `is_typical` are the lossy
criteria, which change the distribution of the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from processors.kernels.softmax import token_probability
from processors.rows import Rows
from processors.upload import upload

__all__ = ["TYPICAL_FACTOR", "TYPICAL_FLOOR", "Spans", "above_threshold", "is_typical", "verify"]

TYPICAL_FLOOR, TYPICAL_FACTOR = 0.09, 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The rows of a step, request by request. starts, num_drafts [Q] int64; drafts [Q, K] int64."""

    starts: Tensor
    num_drafts: Tensor
    drafts: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Spans:
        """Where the rows of each request begin, and what was drafted for it."""
        ends = accumulate(rows.counts)
        cells = [(end - count, count - 1) for end, count in zip(ends, rows.counts, strict=True)]
        starts, num_drafts = upload([*zip(*cells, strict=True)], rows.slots.device, torch.int64)
        return cls(starts, num_drafts, rows.drafts[starts])

    def spread(self, values: Tensor) -> Tensor:
        """Values [R] of the rows as [Q, K + 1]; a request's last one is repeated beyond its rows."""
        place = torch.arange(self.drafts.shape[1] + 1, device=values.device)
        return values[self.starts[:, None] + torch.minimum(place, self.num_drafts[:, None])]

    def accepted(self, stands: Tensor) -> Tensor:
        """How many drafts come before the first that does not stand [Q]; stands [Q, K] bool."""
        place = torch.arange(stands.shape[1], device=stands.device)
        return (stands & (place < self.num_drafts[:, None])).cumprod(dim=1).sum(dim=1)

    def finish(self, accepted: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [Q, K + 1] and how many of them stand [Q]: the accepted drafts [Q], then `final` [Q]."""
        tokens = torch.nn.functional.pad(self.drafts, (0, 1))
        return tokens.scatter(1, accepted[:, None], final[:, None]), accepted + 1


def verify(sampled: Tensor, rows: Rows, *, also: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Accept drafts while they equal what was sampled (policy `match`).

    sampled [R] holds one token a row, Q requests with K_i + 1 rows each. Returns tokens [Q, K + 1] and
    counts [Q]: the first counts[i] tokens of request i stand, the accepted drafts and the token chosen
    after them. Without drafts (K = 0) that is the sampled token of each request. `also` [R] bool lets the
    drafts stand that follow those rows, whatever was sampled there (a lossy policy).
    """
    spans = Spans.of(rows)
    tokens = spans.spread(sampled)
    stands = tokens[:, :-1] == spans.drafts
    if also is not None:
        stands |= spans.spread(also)[:, :-1]
    accepted = spans.accepted(stands)
    return spans.finish(accepted, tokens.gather(1, accepted[:, None]).squeeze(1))


def above_threshold(logits: Tensor, drafted: Tensor, threshold: float) -> Tensor:
    """Rows [R] bool whose draft [R] has at least this probability under the target's logits [R, V]."""
    return token_probability(logits, drafted) >= threshold


def is_typical(logits: Tensor, drafted: Tensor) -> Tensor:
    """Rows [R] bool whose draft is typical: p > min(floor, factor * exp(-H)), H the entropy in nats.

    Cai et al. 2024 (Medusa).
    """
    logprobs = logits.log_softmax(dim=-1)
    entropy = torch.special.entr(logprobs.exp()).sum(dim=-1)
    chosen = logprobs.gather(1, drafted[:, None]).squeeze(1).exp()
    level = (TYPICAL_FACTOR * (-entropy).exp()).clamp(max=TYPICAL_FLOOR)
    return torch.gt(chosen, level)
