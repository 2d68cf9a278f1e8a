"""Stages that forbid ids: those beyond the tokenizer, all but some, or some."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from processors.base import Admission, Processor
from processors.catalog import AllowedParams, Phase, SuppressParams, TailParams
from processors.rows import Rows
from processors.stages.lists import IdStage, mask
from processors.stages.tokens import checked

__all__ = ["Allowed", "Suppress", "Tail"]


class Tail(Processor[TailParams]):
    """Mask the ids from `size` on, which the model has a logit for and the tokenizer no text."""

    name = "tail"
    phase = Phase.CONSTRAIN
    Params = TailParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]; only the columns that some row masks are touched."""
        first = min(self.columns.known("size", rows))
        end = logits[:, first:]
        ids = torch.arange(first, first + end.shape[1], device=logits.device)
        end.masked_fill_(ids >= self.columns.gather("size", rows)[:, None], -math.inf)
        return logits


class Allowed(IdStage[AllowedParams]):
    """Mask every id that is not listed. An id that the vocabulary lacks is a TokenError at admission."""

    name = "allowed"
    phase = Phase.CONSTRAIN
    Params = AllowedParams

    def listed(self, params: AllowedParams, request: Admission) -> Iterable[int]:
        """The ids that stay."""
        return checked(params.ids or (), self.env, "allowed")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]; the listed ones move to a row of -inf."""
        ids, _ = self.ids.gather(rows)
        return torch.full_like(logits, -math.inf).scatter_(1, ids, logits.gather(1, ids))


class Suppress(IdStage[SuppressParams]):
    """Mask the listed ids. An id that the vocabulary lacks is a TokenError at admission."""

    name = "suppress"
    phase = Phase.CONSTRAIN
    Params = SuppressParams

    def listed(self, params: SuppressParams, request: Admission) -> Iterable[int]:
        """The ids that go."""
        return checked(params.ids, self.env, "suppress")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]."""
        return mask(logits, *self.ids.gather(rows))
