"""The stage `bias`: add to the logits of single tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import BiasParams, Phase
from processors.errors import TokenError
from processors.rows import Rows
from processors.stages.lists import Lists
from processors.stages.tokens import edit, token_id

__all__ = ["Bias"]


class Bias(Processor[BiasParams]):
    """x[i] = x[i] + bias[i] for some tokens; -inf bans a token, and a masked token stays masked.

    A key is an id, or a text that is exactly one token. TokenError at admission: a text of several tokens
    (the message shows them), an id outside the vocabulary, an id that is listed twice.
    """

    name = "bias"
    phase = Phase.ADJUST
    Params = BiasParams

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.ids = Lists(torch.int64, env.device)
        self.values = Lists(torch.float64, env.device)

    def admit(self, slot: int, params: BiasParams, request: Admission) -> None:
        """Resolve the keys to ids, and store ids and biases."""
        super().admit(slot, params, request)
        values: dict[int, float] = {}
        for key, value in params.bias:
            token = token_id(key, self.env, "bias")
            if token in values:
                raise TokenError(f"bias names token {token} twice, the second time as {key!r}. Leave one.")
            values[token] = value
        self.ids.write(slot, list(values))
        self.values.write(slot, list(values.values()))

    def fork(self, source: int, target: int) -> None:
        """Copy ids and values."""
        super().fork(source, target)
        self.ids.copy(source, target)
        self.values.copy(source, target)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        ids, _ = self.ids.gather(rows)
        bias, _ = self.values.gather(rows)  # both are padded with their last entry, so they agree
        old = logits.gather(1, ids).double()
        banned = torch.where(bias == -math.inf, bias, old)
        return edit(logits, ids, banned, old + bias)
