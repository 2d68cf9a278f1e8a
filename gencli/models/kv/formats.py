"""Formats of keys and values in the KV cache: that of the states, or a narrower one.

In float8_e4m3fn a value has three bits behind its first and no scale: numbers from 2^-6 to 448 have a
relative error of at most 1/16, smaller ones an error of at most 2^-10, larger ones become 448. In int8 the
values of a token and head have a scale, max(abs(x)) / 127 in float32, whose four bytes lie behind the codes.
So a buffer is one tensor in every format, and lanes are copied, wiped and shared alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SCALE_BYTES", "as_stored", "stored_width", "widened"]

SCALE_BYTES = 4
_LARGEST = {kind: torch.finfo(kind).max for kind in (torch.float16, torch.float8_e4m3fn)}
_TOP = 127.0  # the largest code of int8


def stored_width(dtype: torch.dtype, head_dim: int) -> int:
    """Return how many numbers of `dtype` the keys or values of a token and head take."""
    return head_dim + (SCALE_BYTES if dtype == torch.int8 else 0)


def as_stored(held: Tensor, dtype: torch.dtype) -> Tensor:
    """Return keys and values [..., D] as they are stored in `dtype`, [..., stored_width].

    Values beyond the range of a format without scales become its largest.
    """
    if held.dtype == dtype:
        return held
    if dtype == torch.int8:
        wide = held.float()
        scales = wide.abs().amax(-1, True) / _TOP
        codes = (wide / torch.where(scales == 0, 1.0, scales)).round_().to(torch.int8)
        return torch.cat([codes, scales.view(torch.int8)], -1)
    if dtype in _LARGEST:
        held = held.clamp(-_LARGEST[dtype], _LARGEST[dtype])
    return held.to(dtype)


def widened(stored: Tensor, dtype: torch.dtype) -> Tensor:
    """Return keys and values [..., D] in `dtype`, as `as_stored` has stored them."""
    if stored.dtype != torch.int8:
        return stored.to(dtype)
    codes, scales = stored[..., :-SCALE_BYTES], stored[..., -SCALE_BYTES:].view(torch.float32)
    return (codes * scales).to(dtype)
