"""Blocks of four bits as the groups of 32 that the kernel for four bits takes.

The kernel computes (code - 8) * scale + zero with scale and zero in bfloat16. A code keeps its bits. A scale
in float16 has three bits more than one in bfloat16, so that it changes by at most one part in 256.

Source of the layouts: ggml-quants.c of ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gencli.models.decoder.products.int4 import GROUP, Int4Weights
from gencli.models.gguf.kinds import Kind
from gencli.models.gguf.plan import KEPT
from gencli.models.gguf.widen import Rows

__all__ = ["grouped"]

_MIDDLE = 8
_Groups = tuple[Tensor, Tensor, Tensor]  # codes [N, groups, 32] uint8, scales and zeros [N, groups] float32


def grouped(rows: Rows, kind: Kind) -> Int4Weights:
    """Return stored rows [N, bytes of a row] as weights of four bits, [N, in]. `kind` is one of KEPT."""
    blocks = torch.from_numpy(rows).view(len(rows), -1, kind.nbytes)
    codes, scales, zeros = _READERS[kind.name](blocks)
    pairs = codes.reshape(len(rows), -1, 2)
    return Int4Weights(pairs[..., 0] | pairs[..., 1] << 4, scales.bfloat16(), zeros.bfloat16())


def _q4_0(blocks: Tensor) -> _Groups:
    """A scale d, then 16 bytes: value = (code - 8) * d."""
    scales = _halves(blocks[..., :2])
    return _nibbles(blocks[..., 2:]), scales[..., 0], torch.zeros_like(scales[..., 0])


def _q4_1(blocks: Tensor) -> _Groups:
    """A scale d, a minimum m, then 16 bytes: value = code * d + m."""
    scale, low = _halves(blocks[..., :4]).unbind(-1)
    return _nibbles(blocks[..., 4:]), scale, low + _MIDDLE * scale


def _q4_k(blocks: Tensor) -> _Groups:
    """Scales d and e, 12 bytes of 6-bit scales s and minima m, 8 groups: value = code * d * s - e * m.

    The first four groups have the lower six bits of a byte each; the others four bits of a byte, and the
    upper two of an earlier one.
    """
    outer = _halves(blocks[..., :4])
    first, second, third = torch.split(blocks[..., 4:16], 4, -1)
    scales = torch.cat([first & 63, third & 15 | (first >> 6) << 4], -1)
    lows = torch.cat([second & 63, third >> 4 | (second >> 6) << 4], -1)
    scale, low = outer[..., :1] * scales, outer[..., 1:] * lows
    codes = _nibbles(blocks[..., 16:].reshape(len(blocks), -1, GROUP))
    zero = _MIDDLE * scale - low
    return codes.reshape(len(blocks), -1, GROUP), scale.flatten(1), zero.flatten(1)


def _nibbles(packed: Tensor) -> Tensor:
    """Return the lower four bits of all bytes [..., B], then the upper ones: [..., 2 * B]."""
    return torch.cat([packed & 15, packed >> 4], -1)


def _halves(given: Tensor) -> Tensor:
    """Return bytes [..., 2 * N] as float16 numbers [..., N] in float32."""
    return given.contiguous().view(torch.float16).float()


_READERS: Mapping[str, Callable[[Tensor], _Groups]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q4_K": _q4_k}
assert _READERS.keys() == KEPT
