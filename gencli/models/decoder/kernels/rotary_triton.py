"""Norms, rotation and storing of queries, keys and values with Triton: one program a token and head."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["OPTIONS", "rotate_and_store"]

OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}
_FORMATS = {torch.float16: "float16", torch.float8_e4m3fn: "fp8", torch.int8: "int8"}


@triton.jit  # type: ignore[untyped-decorator]
def _of_scale(base, start, first, count, width, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / sqrt(mean of squares + eps) of `count` numbers from `first` on, of one head or of several."""
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(0, count, BLOCK):
        places = block + tl.arange(0, BLOCK)
        wide = tl.load(base + start + first + places, mask=places < count, other=0.0).to(tl.float32)
        total += wide * wide
    return tl.rsqrt(tl.sum(total, axis=0) / count + eps)


@triton.jit  # type: ignore[untyped-decorator]
def _of_head(  # type: ignore[no-untyped-def]
    base, start, first, places, is_inside, weight, weight_start, scale, HAS_NORM: tl.constexpr
):
    """The numbers at `places` of a head, normalized."""
    values = tl.load(base + start + first + places, mask=is_inside, other=0.0)
    if HAS_NORM:
        factors = tl.load(weight + weight_start + places, mask=is_inside, other=0.0).to(tl.float32)
        values = (values.to(tl.float32) * scale * factors).to(values.dtype)
    return values


@triton.jit
def _of_fp8(values):  # type: ignore[no-untyped-def]
    """The bits of values in float8_e4m3fn, rounded to even; those beyond it become its largest."""
    wide = tl.clamp(values, -448.0, 448.0)
    bits = tl.abs(wide).to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 120 * 8  # three bits of it; another exponent
    small = (tl.abs(wide) * 512.0 + 12582912.0).to(tl.int32, bitcast=True) & 15  # a multiple of 2^-9
    code = tl.where(tl.abs(wide) < 0.015625, small, normal)
    code = tl.where(values == values, code, 127)
    return (code | ((values.to(tl.int32, bitcast=True) >> 24) & 128)).to(tl.uint8)


@triton.jit
def _of_int8(values):  # type: ignore[no-untyped-def]
    """The codes and the scale of a head in int8."""
    scale = tl.div_rn(tl.max(tl.abs(values), axis=0), 127.0)
    codes = tl.div_rn(values, tl.where(scale == 0.0, 1.0, scale) + tl.zeros_like(values))
    return ((codes + 12582912.0) - 12582912.0).to(tl.int8), scale  # rounded to even


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    made,
    buffer,
    rows,
    positions,
    cos,
    sin,
    query_weight,
    key_weight,
    queries,
    heads,
    kv_heads,
    width,
    turned,
    row_stride,
    head_stride,
    token_stride,
    eps,
    NORM: tl.constexpr,
    HAS_ROPE: tl.constexpr,
    FORMAT: tl.constexpr,
    BLOCK: tl.constexpr,
    NORM_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    start = token * (heads + 2 * kv_heads) * width
    first = head * width
    places = tl.arange(0, BLOCK)
    is_inside = places < width
    is_query = head < heads
    if head < heads + kv_heads:
        weight = query_weight if is_query else key_weight
        weight_start, scale = 0, 0.0
        if NORM == "head":
            scale = _of_scale(made, start, first, width, width, eps, NORM_BLOCK)
        if NORM == "whole":
            section = 0 if is_query else heads * width
            weight_start = first - section
            count = (heads if is_query else kv_heads) * width
            scale = _of_scale(made, start, section, count, width, eps, NORM_BLOCK)
        values = _of_head(made, start, first, places, is_inside, weight, weight_start, scale, NORM != "none")
        if HAS_ROPE:
            is_turned = places < turned
            other_places = (places + turned // 2) % turned
            other = _of_head(
                made, start, first, other_places, is_turned, weight, weight_start, scale, NORM != "none"
            )
            cosine = tl.load(cos + token * turned + places, mask=is_turned, other=1.0).to(tl.float32)
            sine = tl.load(sin + token * turned + places, mask=is_turned, other=0.0).to(tl.float32)
            part = (values.to(tl.float32) * cosine).to(values.dtype).to(tl.float32)
            rotated = (part + other.to(tl.float32) * sine).to(values.dtype)
            values = tl.where(is_turned, rotated, values)
    else:
        values = tl.load(made + start + first + places, mask=is_inside, other=0.0)
    if is_query:
        tl.store(queries + (token * heads + head) * width + places, values, mask=is_inside)
    else:
        cell = tl.load(rows + token) * row_stride + tl.load(positions + token) * token_stride
        kept = buffer + cell + (head - heads) * head_stride
        if FORMAT == "fp8":
            tl.store(kept + places, _of_fp8(values.to(tl.float32)), mask=is_inside)
        elif FORMAT == "int8":
            codes, unit = _of_int8(values.to(tl.float32))
            tl.store(kept + places, codes, mask=is_inside)
            tl.store((kept + width).to(tl.pointer_type(tl.float32)), unit)
        else:
            if FORMAT == "float16":  # what is beyond it becomes its largest
                values = tl.clamp(values.to(tl.float32), -65504.0, 65504.0)
            tl.store(kept + places, values.to(buffer.dtype.element_ty), mask=is_inside)


def rotate_and_store(
    made: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    query: Tensor | None,
    key: Tensor | None,
    eps: float,
    is_whole: bool,
) -> Tensor:
    """As the operation rotate_and_store. All but the buffer is contiguous."""
    tokens, all_heads, width = made.shape
    kv_heads = buffer.shape[1] // 2
    heads = all_heads - 2 * kv_heads
    queries = made.new_empty(tokens, heads, width)
    block = triton.next_power_of_2(width)
    _kernel[(tokens, all_heads)](
        made,
        buffer.view(torch.uint8) if buffer.dtype == torch.float8_e4m3fn else buffer,
        rows,
        positions,
        *(made if one is None else one for one in (cos, sin, query, key)),
        queries,
        heads,
        kv_heads,
        width,
        width if cos is None else cos.shape[-1],
        buffer.stride(0),
        buffer.stride(1),
        buffer.stride(2),
        eps,
        NORM="none" if query is None else "whole" if is_whole else "head",
        HAS_ROPE=cos is not None,
        FORMAT="float" if buffer.dtype == made.dtype else _FORMATS.get(buffer.dtype, "float"),
        BLOCK=block,
        NORM_BLOCK=1024 if is_whole else block,
        **OPTIONS,
    )
    return queries
