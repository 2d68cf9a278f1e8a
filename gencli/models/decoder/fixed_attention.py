"""Attention that gives a token the same bits in a prompt, among drafts and as the only one of its row."""

from __future__ import annotations

import torch
from torch import Tensor

from gencli.models.decoder.decode_attention import DecodePlan

__all__ = ["FixedPlan"]

_MAX_CELLS = 2**20  # keys that are looked at in a call, over all its tokens; what bounds the memory


class FixedPlan:
    """The plan for N tokens of any lanes in which each token is a row of its own, as in a decode step.

    A token's sums are those of DecodePlan, whose order its position alone decides. Keys of a prompt are read
    again for each of its tokens. `rows` and `positions` [N] and `end` are as for DecodePlan.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self._whole = DecodePlan(rows, positions, end)
        size = max(1, _MAX_CELLS // end)
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        self._parts = [(part, DecodePlan(rows[part], positions[part], end)) for part in parts]

    def store(self, held: Tensor, buffer: Tensor) -> None:
        """Write keys and values, as AttentionPlan.store."""
        self._whole.store(held, buffer)

    def attend(
        self, made: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention, as AttentionPlan.attend."""
        mixed = [
            plan.attend(made[part], buffer, window=window, scale=scale, cap=cap) for part, plan in self._parts
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)
