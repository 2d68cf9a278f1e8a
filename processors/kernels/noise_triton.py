"""The noise of processors.rng inside Triton kernels: the same 64-bit hash, so the same numbers."""

from __future__ import annotations

import triton
import triton.language as tl

__all__: list[str] = []


@triton.jit
def _of_mix(value):  # type: ignore[no-untyped-def]
    # int64: >> extends the sign, so a mask makes it a logical shift; products wrap.
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _of_row_key(seed, position, STREAM: tl.constexpr):  # type: ignore[no-untyped-def]
    inner = _of_mix(seed + position * -7046029254386353131)
    return _of_mix(inner + tl.full((), STREAM, tl.int64) * -7046029254386353131)


@triton.jit
def _of_uniform(key, ids):  # type: ignore[no-untyped-def]
    bits = (_of_mix(key + ids.to(tl.int64) * -7046029254386353131) >> 12) & 0xFFFFFFFFFFFFF
    return (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit
def _of_gumbel(key, ids):  # type: ignore[no-untyped-def]
    return -tl.log(-tl.log(_of_uniform(key, ids)))
