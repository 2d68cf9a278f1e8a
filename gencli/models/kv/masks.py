"""Attention masks for lanes of different length.

In transformers a model's mask function over positions defines which keys a token sees (causal, sliding
window, chunked), and a registered function builds the mask from it. The functions here build the mask from
per-lane positions, so every architecture keeps its own mask function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from gencli.models.kv.lane_attention import lane_attention, mark_spans
from gencli.models.kv.packed_attention import attend

__all__ = ["static_masks", "use_lane_masks"]

_SDPA, _EAGER = "gencli_sdpa", "gencli_eager"
_is_static: ContextVar[bool] = ContextVar("is_static", default=False)


@contextmanager
def static_masks() -> Iterator[None]:
    """While active, masks are additive ones that the host does not look at.

    SDPA would make an additive mask of a boolean one again in each layer.
    """
    token = _is_static.set(True)
    try:
        yield
    finally:
        _is_static.reset(token)


def use_lane_masks(model: Any) -> bool:
    """Switch the model to lane masks, keeping its attention kernel; return whether it supports that."""
    names = {"sdpa": _SDPA, _SDPA: _SDPA, "eager": _EAGER, _EAGER: _EAGER}
    name = names.get(model.config._attn_implementation)
    if name is None or not getattr(model, "_supports_attention_backend", False):
        return False
    AttentionInterface.register(_SDPA, partial(attend, lane_attention))
    AttentionInterface.register(_EAGER, partial(attend, _own_eager_attention))
    AttentionMaskInterface.register(_SDPA, _lane_mask)
    AttentionMaskInterface.register(_EAGER, _additive_lane_mask)
    model.set_attn_implementation(name)
    return bool(model.config.get_text_config(decoder=True)._attn_implementation == name)


def _own_eager_attention(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call the eager attention of the module's own file; architectures differ in it (sinks, softcaps)."""
    return sys.modules[type(module).__module__].__dict__["eager_attention_forward"](module, *args, **kwargs)


def _lane_mask(
    *, q_offset: int | Tensor, mask_function: Callable[..., Tensor], **kwargs: Any
) -> Tensor | None:
    """Return the boolean mask [B, 1, Q, K], in `static_masks` an additive one, or None where none is needed.

    `q_offset` is the result of LaneCache.get_query_offset: the common first position, or positions [B, Q].
    """
    if isinstance(q_offset, int):
        return cast("Tensor | None", sdpa_mask(q_offset=q_offset, mask_function=mask_function, **kwargs))
    mask = _boolean(q_offset, mask_function, kwargs["kv_length"])
    return _additive(mask, kwargs["dtype"]) if _is_static.get() else mark_spans(mask)


def _boolean(positions: Tensor, mask_function: Callable[..., Tensor], kv_length: int) -> Tensor:
    """Return the mask [B, 1, Q, K] of tokens at `positions` [B, Q]."""
    batch, device = positions.shape[0], positions.device
    rows = torch.arange(batch, device=device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
    keys = torch.arange(kv_length, device=device)[None, None, None, :]
    mask = mask_function(rows, head, positions[:, None, :, None], keys)
    return mask.expand(batch, 1, positions.shape[1], -1)


def _additive_lane_mask(
    *, q_offset: int | Tensor, mask_function: Callable[..., Tensor], dtype: torch.dtype, **kwargs: Any
) -> Tensor | None:
    """Return the same mask in additive form."""
    if isinstance(q_offset, int):
        made = eager_mask(q_offset=q_offset, mask_function=mask_function, dtype=dtype, **kwargs)
        return cast("Tensor | None", made)
    return _additive(_boolean(q_offset, mask_function, kwargs["kv_length"]), dtype)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask in additive form: 0, or the lowest finite value of `dtype`."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
