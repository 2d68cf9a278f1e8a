"""The stages `min_tokens`, `ignore_eos` and `eos_above`: when a text may end, and when it must."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from processors.base import Admission
from processors.catalog import IgnoreEosParams, MinTokensParams, Phase
from processors.catalog.constrain import EosAboveParams
from processors.kernels.blocks import row_parts
from processors.kernels.sums import row_sums
from processors.rows import Rows
from processors.stages.lists import IdStage, mask
from processors.stages.tokens import LOWEST, checked
from processors.stages.truncation import mass

__all__ = ["EosAbove", "IgnoreEos", "MinTokens"]


class MinTokens(IdStage[MinTokensParams]):
    """x[i] = -inf for every end-of-text and stop id while the output has fewer than `count` tokens.

    Drafts that a row sees count as output. TokenError at admission: an id outside the vocabulary.
    """

    name = "min_tokens"
    phase = Phase.CONSTRAIN
    Params = MinTokensParams

    def listed(self, params: MinTokensParams, request: Admission) -> Iterable[int]:
        """Return the end-of-text and stop ids of the request."""
        return checked((*self.env.eos_ids, *request.stop_ids), self.env, "min_tokens")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        ids, filled = self.ids.gather(rows)
        early = rows.positions < self.columns.gather("count", rows)
        return mask(logits, ids, filled & early[:, None])

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: the output has enough tokens."""
        counts, positions = self.columns.gather("count", rows).tolist(), rows.positions.tolist()
        pairs = zip(counts, positions, strict=True)
        return [f"{count} tokens are reached" if position >= count else "" for count, position in pairs]


class IgnoreEos(IdStage[IgnoreEosParams]):
    """x[i] = -inf for every end-of-text id; stop ids are not masked.

    TokenError at admission: an end-of-text id outside the vocabulary.
    """

    name = "ignore_eos"
    phase = Phase.CONSTRAIN
    Params = IgnoreEosParams

    def listed(self, params: IgnoreEosParams, request: Admission) -> Iterable[int]:
        """Return the end-of-text ids; none if the stage is off."""
        return checked(self.env.eos_ids, self.env, "ignore_eos") if params.enabled else ()

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        return mask(logits, *self.ids.gather(rows))


class EosAbove(IdStage[EosAboveParams]):
    """x[i] = -inf for every other id i if some end-of-text id e has p[e] > p, p = softmax(x).

    TokenError at admission: an end-of-text id outside the vocabulary.
    """

    name = "eos_above"
    phase = Phase.CONSTRAIN
    Params = EosAboveParams

    def listed(self, params: EosAboveParams, request: Admission) -> Iterable[int]:
        """Return the end-of-text ids."""
        return checked(self.env.eos_ids, self.env, "eos_above")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        ids, filled = self.ids.gather(rows)
        ends = logits.gather(1, ids)
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        total = torch.cat([row_sums(mass(logits[part], peak[part])) for part in row_parts(logits)])
        likely = mass(ends.amax(1, keepdim=True), peak) > self.columns.exact("p", rows)[:, None] * total
        decided = filled & likely
        return logits.masked_fill_(decided, -math.inf).scatter_(
            1, ids, torch.where(decided, ends, logits.gather(1, ids))
        )

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: no end-of-text id is likely enough."""
        return [f"no end of text above {p:g}" for p in self.columns.exact("p", rows).tolist()]
