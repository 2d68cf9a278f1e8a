"""Verification of draft tokens: accept a prefix of the drafts, then add one token.

`verify` accepts a draft that equals the sampled token; `above_threshold` and `is_typical` are the lossy
criteria, which change the distribution of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from processors.kernels.softmax import token_probability
from processors.kernels.sums import row_sums
from processors.rows import Rows
from processors.upload import upload

__all__ = ["TYPICAL_FACTOR", "TYPICAL_FLOOR", "Spans", "above_threshold", "is_typical", "matched", "verify"]

TYPICAL_FLOOR, TYPICAL_FACTOR = 0.09, 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The rows of a step by request: first row starts [Q], num_drafts [Q], drafts [Q, K], all int64."""

    starts: Tensor
    num_drafts: Tensor
    drafts: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Spans:
        """Build from the rows of a step."""
        ends = accumulate(rows.counts)
        cells = [(end - count, count - 1) for end, count in zip(ends, rows.counts, strict=True)]
        starts, num_drafts = upload([*zip(*cells, strict=True)], rows.slots.device, torch.int64)
        return cls(starts, num_drafts, rows.drafts[starts])

    def spread(self, values: Tensor) -> Tensor:
        """Return values [R] as [Q, K + 1], padded with the value of each request's last row."""
        column = torch.arange(self.drafts.shape[1] + 1, device=values.device)
        return values[self.starts[:, None] + torch.minimum(column, self.num_drafts[:, None])]

    def accepted(self, is_accepted: Tensor) -> Tensor:
        """Return the number of drafts before the first rejected one [Q]; is_accepted [Q, K] bool."""
        column = torch.arange(is_accepted.shape[1], device=is_accepted.device)
        return (is_accepted & (column < self.num_drafts[:, None])).cumprod(dim=1).sum(dim=1)

    def finish(self, accepted: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens [Q, K + 1] and the number of valid ones [Q]: accepted drafts, then `final` [Q]."""
        tokens = torch.nn.functional.pad(self.drafts, (0, 1))
        return tokens.scatter(1, accepted[:, None], final[:, None]), accepted + 1


def verify(sampled: Tensor, rows: Rows, *, also: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Accept drafts while they equal the sampled tokens (policy `match`).

    sampled [R] has one token per row, for Q requests with K_i + 1 rows each. Return tokens [Q, K + 1] and
    counts [Q]: the first counts[i] tokens of request i are its accepted drafts and the token sampled after
    them. Without drafts (K = 0) that is the sampled token alone. `also` [R] bool: rows whose draft is
    accepted whatever token was sampled (a lossy policy).
    """
    if not rows.drafts.shape[1]:
        return sampled[:, None], torch.ones_like(sampled)
    spans = Spans.of(rows)
    tokens = spans.spread(sampled)
    is_accepted = tokens[:, :-1] == spans.drafts
    if also is not None:
        is_accepted |= spans.spread(also)[:, :-1]
    accepted = spans.accepted(is_accepted)
    return spans.finish(accepted, tokens.gather(1, accepted[:, None]).squeeze(1))


def matched(sampled: Sequence[int], rows: Rows) -> list[list[int]]:
    """Return the tokens that `verify` finds valid, by request, for sampled tokens [R] on the host."""
    found, start = [], 0
    for count in rows.counts:
        own, drafts = sampled[start : start + count], rows.host_drafts[start + count - 1]
        places = (place for place, draft in enumerate(drafts) if own[place] != draft)
        found.append([*own[: next(places, count - 1) + 1]])
        start += count
    return found


def above_threshold(logits: Tensor, drafted: Tensor, threshold: float) -> Tensor:
    """Return whether each draft [R] has at least this probability under the target's logits [R, V]."""
    return token_probability(logits, drafted) >= threshold


def is_typical(logits: Tensor, drafted: Tensor) -> Tensor:
    """Return whether each draft [R] is typical: p > min(floor, factor * exp(-H)), H the entropy in nats.

    Typical acceptance of Medusa (Cai et al. 2024).
    """
    logprobs = logits.log_softmax(dim=-1)
    entropy = row_sums(torch.special.entr(logprobs.exp())).squeeze(1)
    chosen = logprobs.gather(1, drafted[:, None]).squeeze(1).exp()
    level = (TYPICAL_FACTOR * (-entropy).exp()).clamp(max=TYPICAL_FLOOR)
    return torch.gt(chosen, level)
