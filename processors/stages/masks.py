"""The stages `tail`, `allowed`, `suppress` and `begin_suppress`: mask ids by list or range."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from processors.base import Admission, Processor
from processors.catalog import AllowedParams, Phase, SuppressParams, TailParams
from processors.catalog.constrain import BeginSuppressParams
from processors.rows import Rows
from processors.stages.lists import IdStage, mask
from processors.stages.tokens import checked

__all__ = ["Allowed", "BeginSuppress", "Suppress", "Tail"]


class Tail(Processor[TailParams]):
    """x[i] = -inf for i >= size: ids with a logit that the tokenizer does not know."""

    name = "tail"
    phase = Phase.CONSTRAIN
    Params = TailParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Writes only columns from the smallest `size` of the rows on."""
        first = min(self.columns.known("size", rows))
        end = logits[:, first:]
        ids = torch.arange(first, first + end.shape[1], device=logits.device)
        end.masked_fill_(ids >= self.columns.gather("size", rows)[:, None], -math.inf)
        return logits


class Allowed(IdStage[AllowedParams]):
    """x[i] = -inf for i not in ids. TokenError at admission: an id outside the vocabulary."""

    name = "allowed"
    phase = Phase.CONSTRAIN
    Params = AllowedParams

    def listed(self, params: AllowedParams, request: Admission) -> Iterable[int]:
        """Return the allowed ids."""
        return checked(params.ids or (), self.env, "allowed")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]: -inf, with the listed logits copied in."""
        ids, _ = self.ids.gather(rows)
        return torch.full_like(logits, -math.inf).scatter_(1, ids, logits.gather(1, ids))


class Suppress(IdStage[SuppressParams]):
    """x[i] = -inf for i in ids. TokenError at admission: an id outside the vocabulary."""

    name = "suppress"
    phase = Phase.CONSTRAIN
    Params = SuppressParams

    def listed(self, params: SuppressParams, request: Admission) -> Iterable[int]:
        """Return the suppressed ids."""
        return checked(params.ids, self.env, "suppress")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        return mask(logits, *self.ids.gather(rows))


class BeginSuppress(IdStage[BeginSuppressParams]):
    """x[i] = -inf for i in ids, for the first token of the output.

    TokenError at admission: an id outside the vocabulary.
    """

    name = "begin_suppress"
    phase = Phase.CONSTRAIN
    Params = BeginSuppressParams

    def listed(self, params: BeginSuppressParams, request: Admission) -> Iterable[int]:
        """Return the suppressed ids."""
        return checked(params.ids, self.env, "begin_suppress")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        ids, filled = self.ids.gather(rows)
        return mask(logits, ids, filled & (rows.positions == 0)[:, None])

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: the output has begun."""
        return ["" if position == 0 else "not the first token" for position in rows.positions.tolist()]
