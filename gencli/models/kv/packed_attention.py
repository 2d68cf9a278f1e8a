"""Attention in a pass with the packed layout: the tokens of all feeds are one row [1, N].

The queries are split by feed width. Feeds of one width are computed in one call, each over its own KV lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gencli.models.kv.lane_attention import mark_spans

__all__ = ["QuerySplit", "attend", "packed_layout"]

_Attention = Callable[..., tuple[Tensor, "Tensor | None"]]


@dataclass(frozen=True, slots=True)
class QuerySplit:
    """Queries of feeds of one width W, over L lanes.

    `columns` are the L * W query columns in the row. `lanes` are the L rows of the KV buffers, read up to
    `kv_length` tokens. `kept` [F] are the indices of the feeds among the L lanes, None for all; the others
    are idle lanes, included where that is cheaper than copying.
    """

    columns: slice | Tensor
    lanes: slice | Tensor
    width: int
    kv_length: int
    kept: Tensor | None = None

    def take(self, values: Tensor) -> Tensor:
        """Return the columns of values [1, H, N, X] as [L, H, W, X]."""
        taken = values[0, :, self.columns]
        return taken.view(len(taken), -1, self.width, taken.shape[-1]).transpose(0, 1)


class _Layout:
    """The query splits of the current pass, and the mask of each, cached for all layers."""

    def __init__(self, query_splits: tuple[QuerySplit, ...]) -> None:
        self.query_splits = query_splits
        self._masks: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def masks(self, mask: Tensor) -> list[Tensor]:
        """Return the mask [1, 1, N, K] as one [L, 1, W, K] for each split."""
        if id(mask) not in self._masks:
            own = [split.take(mask)[..., : split.kv_length] for split in self.query_splits]
            self._masks[id(mask)] = mask, [mark_spans(m) if m.dtype == torch.bool else m for m in own]
        return self._masks[id(mask)][1]


_layout: ContextVar[_Layout | None] = ContextVar("layout", default=None)


@contextmanager
def packed_layout(query_splits: tuple[QuerySplit, ...]) -> Iterator[None]:
    """While active, `attend` splits packed queries into `query_splits`; no effect if there are none."""
    token = _layout.set(_Layout(query_splits) if query_splits else None)
    try:
        yield
    finally:
        _layout.reset(token)


def attend(
    attention: _Attention,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Call an attention function of transformers, once per query split inside `packed_layout`.

    In the packed layout query is [1, H, N, D], key and value [lanes, H, K, D], the mask [1, 1, N, K], the
    result [1, N, H, D]. The mask may be positional or named, as models do both.
    """
    layout = _layout.get()
    if layout is None:
        return attention(module, query, key, value, attention_mask, **kwargs)
    assert attention_mask is not None
    outputs = []
    for split, own in zip(layout.query_splits, layout.masks(attention_mask), strict=True):
        keys, values = (held[split.lanes, :, : split.kv_length] for held in (key, value))
        out = attention(module, split.take(query), keys, values, own, **kwargs)[0]
        outputs.append((out if split.kept is None else out[split.kept]).flatten(0, 1))
    return torch.cat(outputs)[None], None
