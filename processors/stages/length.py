"""The stages `min_tokens` and `ignore_eos`: mask ids that end a text."""

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


class IgnoreEos(IdStage[IgnoreEosParams]):
    """x[i] = -inf for every end-of-text id; stop ids are not masked.

    TokenError at admission: an end-of-text id outside the vocabulary.
    """

    name = "ignore_eos"
    phase = Phase.CONSTRAIN
    Params = IgnoreEosParams

    def listed(self, params: IgnoreEosParams, request: Admission) -> Iterable[int]:
        """Return the end-of-text ids if the stage is on."""
        return checked(self.env.eos_ids, self.env, "ignore_eos") if params.enabled else ()

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        return mask(logits, *self.ids.gather(rows))
