"""Attention of a chunk by PyTorch's kernel for packed texts, which takes no mask and shares key heads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from gencli.models.decoder.kernels.chunk import attend_chunk_torch
from gencli.models.decoder.sinks import reduced

__all__ = ["attend_chunk_varlen"]

_FORMATS = (torch.bfloat16, torch.float16)
_MAX_WIDTH = 256  # of a head


def attend_chunk_varlen(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    window: int,
    scale: float,
    cap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """As attend_chunk_torch, which computes what the kernel lacks: caps, float32, and older GPUs.

    The kernel has no sinks: its sums are reduced by their share, in one more rounding.
    """
    attend = _packed_attention()
    if attend is None or cap or not _is_known(queries):
        return attend_chunk_torch(queries, keys, values, window, scale, cap, sinks)
    width, length = len(queries), len(keys)
    more = {} if sinks is None else {"return_aux": _with_sums()}
    found = attend(
        queries,
        keys,
        values,
        torch.arange(0, width + 1, width, dtype=torch.int32, device=queries.device),
        torch.arange(0, length + 1, length, dtype=torch.int32, device=queries.device),
        width,
        length,
        scale=scale,
        window_size=(window - 1, 0) if window else (-1, 0),
        enable_gqa=True,
        num_splits=1,  # the sums of a text are the same beside any others
        **more,
    )
    if sinks is None:
        made: Tensor = found
    else:
        mixed, sums = found
        made = reduced(mixed, sums, sinks)
    return made.flatten(1)


def _with_sums() -> Any:
    """Return the request for the logarithm of each query's sum of weights, [Hq, W] float32."""
    from torch.nn.attention.varlen import AuxRequest

    return AuxRequest(lse=True)


@cache
def _packed_attention() -> Callable[..., Any] | None:
    """Return PyTorch's attention of packed texts; None before it could share key heads and fix its sums."""
    if find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn

    is_whole = {"enable_gqa", "num_splits"} <= signature(varlen_attn).parameters.keys()
    return varlen_attn if is_whole else None


def _is_known(queries: Tensor) -> bool:
    width = queries.shape[-1]
    return (
        queries.dtype in _FORMATS
        and width % 8 == 0
        and width <= _MAX_WIDTH
        and torch.cuda.get_device_capability(queries.device) >= (8, 0)
    )
