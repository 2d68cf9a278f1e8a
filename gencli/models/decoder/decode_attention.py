"""Attention of a step with one token for each row, of tensors on the device only."""

from __future__ import annotations

import torch
from torch import Tensor

from gencli.models.decoder.attention import Block
from gencli.models.kv.formats import widened

__all__ = ["DecodePlan"]


class DecodePlan:
    """One token for each of R rows. All shapes depend on R and `end` alone, so that a graph can record it.

    `rows` [R] int64 are the rows of the KV buffers, `positions` [R] int64 the tokens' places. `end` bounds the
    keys that are looked at: it is beyond every position, and at most the capacity of the buffers.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self._rows, self._positions, self._end = rows, positions, end
        self._masks: dict[int | None, Tensor] = {}

    def store(self, held: Tensor, buffer: Tensor) -> None:
        """Write keys and values, as AttentionPlan.store."""
        buffer.transpose(1, 2)[self._rows, self._positions] = held

    def attend(
        self, made: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention, as AttentionPlan.attend."""
        if window not in self._masks:
            self._masks[window] = self._mask(window, made.dtype)
        kv_heads = buffer.shape[1] // 2
        held = widened(buffer[:, :, : self._end].index_select(0, self._rows), made.dtype)
        block = Block(slice(None), slice(None), 1, 0, self._end, self._masks[window])
        queries = made[:, : made.shape[1] - 2 * kv_heads]
        return block.attend(queries, held[:, :kv_heads], held[:, kv_heads:], scale, cap)

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Return the additive mask [R, 1, 1, end]: 0 for the keys that a row sees, else minus infinity."""
        places = self._positions[:, None]
        keys = torch.arange(self._end, device=places.device)
        hidden = keys > places
        if window is not None:
            hidden |= keys <= places - window
        shown = torch.zeros(hidden.shape, dtype=dtype, device=places.device)
        return shown.masked_fill_(hidden, -torch.inf)[:, None, None]
