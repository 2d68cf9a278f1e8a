"""Stages about where a text may end."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from processors.base import Admission
from processors.catalog import IgnoreEosParams, MinTokensParams, Phase
from processors.rows import Rows
from processors.stages.lists import IdStage, mask
from processors.stages.tokens import checked

__all__ = ["IgnoreEos", "MinTokens"]


class MinTokens(IdStage[MinTokensParams]):
    """Mask the end-of-text and stop ids of a request until it has `count` output tokens.

    A draft that a row sees counts as output. An id that the vocabulary lacks is a TokenError at admission.
    """

    name = "min_tokens"
    phase = Phase.CONSTRAIN
    Params = MinTokensParams

    def listed(self, params: MinTokensParams, request: Admission) -> Iterable[int]:
        """The ids that could end this request."""
        return checked((*self.env.eos_ids, *request.stop_ids), self.env, "min_tokens")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]."""
        ids, filled = self.ids.gather(rows)
        early = rows.positions < self.columns.gather("count", rows)
        return mask(logits, ids, filled & early[:, None])


class IgnoreEos(IdStage[IgnoreEosParams]):
    """Mask the end-of-text ids, so that no end marker appears; stop ids stay.

    An end-of-text id that the vocabulary lacks is a TokenError at admission.
    """

    name = "ignore_eos"
    phase = Phase.CONSTRAIN
    Params = IgnoreEosParams

    def listed(self, params: IgnoreEosParams, request: Admission) -> Iterable[int]:
        """The end-of-text ids, where the stage is on."""
        return checked(self.env.eos_ids, self.env, "ignore_eos") if params.enabled else ()

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]."""
        return mask(logits, *self.ids.gather(rows))
