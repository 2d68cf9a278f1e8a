"""Attention in a pass whose tokens stand in one row: it takes the row apart again.

Feeds of one width are looked at together, each over what its own lane holds.
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

__all__ = ["Part", "attend", "laid_out"]

_Attention = Callable[..., tuple[Tensor, "Tensor | None"]]


@dataclass(frozen=True, slots=True)
class Part:
    """Feeds of one width W, whose lanes are the rows `lanes` of the keys, as far as `kv_length`.

    `place` are their L * W tokens in the row. Where idle lanes between them are looked at as well, as that is
    cheaper than copying the others, `kept` are the feeds of these L.
    """

    place: slice | Tensor
    lanes: slice | Tensor
    width: int
    kv_length: int
    kept: Tensor | None = None

    def take(self, values: Tensor) -> Tensor:
        """The feeds' rows [L, H, W, X] of values [1, H, N, X]."""
        taken = values[0, :, self.place]
        return taken.view(len(taken), -1, self.width, taken.shape[-1]).transpose(0, 1)


class _Layout:
    """The parts of the pass that is under way, and the masks of each, which many layers share."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self._masks: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def masks(self, mask: Tensor) -> list[Tensor]:
        """What a mask [1, 1, N, K] is for each part: [L, 1, W, K]."""
        if id(mask) not in self._masks:
            own = [part.take(mask)[..., : part.kv_length] for part in self.parts]
            self._masks[id(mask)] = mask, [mark_spans(one) if one.dtype == torch.bool else one for one in own]
        return self._masks[id(mask)][1]


_layout: ContextVar[_Layout | None] = ContextVar("layout", default=None)


@contextmanager
def laid_out(parts: tuple[Part, ...]) -> Iterator[None]:
    """Within, attention takes its queries apart so; without parts it does not."""
    token = _layout.set(_Layout(parts) if parts else None)
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
    """An attention function of the library, part by part where the pass is one row of tokens.

    There query is [1, H, N, D], key and value [lanes, H, K, D], mask [1, 1, N, K], the answer [1, N, H, D].
    Some models give the mask by its name.
    """
    layout = _layout.get()
    if layout is None:
        return attention(module, query, key, value, attention_mask, **kwargs)
    assert attention_mask is not None
    found = []
    for part, own in zip(layout.parts, layout.masks(attention_mask), strict=True):
        keys, values = (held[part.lanes, :, : part.kv_length] for held in (key, value))
        out = attention(module, part.take(query), keys, values, own, **kwargs)[0]
        found.append((out if part.kept is None else out[part.kept]).flatten(0, 1))
    return torch.cat(found)[None], None
