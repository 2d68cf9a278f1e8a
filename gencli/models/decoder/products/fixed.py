"""Products on CUDA whose order of sums does not depend on the number of rows."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise

import torch
from torch import Tensor

from gencli.models.decoder.mxfp4 import widened_mxfp4
from gencli.models.decoder.products.dense import PlainProduct
from processors.kernels.operation import operation

__all__ = [
    "GROUP",
    "MAX_SPLIT_ROWS",
    "MIDDLE",
    "NARROW_INPUTS",
    "OUTPUTS",
    "ROWS",
    "TILES",
    "FixedProduct",
    "bits_of_weights",
    "can_fix",
    "counters_of",
    "fixed_product",
    "fixed_product_torch",
    "has_whole_tiles",
    "num_parts",
    "num_tiles",
    "summed_in_parts",
]

GROUP, MIDDLE = 32, 8  # inputs with one scale in codes of four bits, and the code of their zero
ROWS, OUTPUTS = 32, 128  # rows and outputs of a tile; absent rows are rows of zeros
MAX_SPLIT_ROWS = 128  # up to so many rows each part of a sum is computed by a program of its own
TILES = {4: 3, 8: 4, 16: 4, 32: 2}  # tiles of rows of a program that has many, by the bits of a weight
_CODES = {torch.int8: 8, torch.uint8: 4}  # bits of a weight, by the format of codes
_PROGRAMS = 128  # about the number of multiprocessors of a GPU
_NARROW_PROGRAMS = 132  # that of an H200: 128 programs that widen codes took twice as long as 256 there
NARROW_INPUTS = 128  # inputs of a tile of narrow weights, if parts of a sum have whole ones
_MAX_PARTS = 8  # the last program of a tile adds up all parts, while the others have ended
_MIN_PART = 256  # inputs of a part
_FORMATS = (torch.bfloat16, torch.float16, torch.float32)


class FixedProduct(PlainProduct):
    """The product by a Triton kernel with one order of sums, float32, for any number of rows.

    Inputs are added up in parts, whose number depends on the shape of the weight alone. In each the same
    instructions compute a tile of 32 rows and 128 outputs, however many rows there are. One launch.
    """

    kernel = "fixed"
    is_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(weight, bias)
        self._arrived = counters_of(weight)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return fixed_product(given, self._weight, None, None, self._bias, self._arrived)

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32."""
        if given.dtype != self._weight.dtype:  # weights that were widened
            return super().wide(given)
        return fixed_product(given, self._weight, None, None, self._bias, self._arrived, is_wide=True)


def fixed_product(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    arrived: Tensor,
    *,
    is_wide: bool = False,
) -> Tensor:
    """Return x @ w.T + bias in the format of `given` [N, in], or in float32 if `is_wide`.

    `arrived` are the counters of the product.

    `weight` [out, in] is w, or in int8 codes: w = code * scales[out], with the scales in float32. In uint8 it
    holds two codes of four bits a byte, [out, in / 2], as Int4Weights does: w = (code - 8) * scale + zero,
    with `scales` and `zeros` [out, in / 32], is rounded to the format of `given`. Without zeros they are
    codes of MXFP4 with their scales.
    """
    made: Tensor = _product(given.contiguous(), weight, scales, zeros, bias, arrived, is_wide)
    return made


def counters_of(weight: Tensor) -> Tensor:
    """Return counters for the product with a weight: how many parts of a tile have arrived.

    The last part sets its counter to zero again. So the launches of a product have to follow each other, as
    on one stream.
    """
    count = MAX_SPLIT_ROWS // ROWS * num_tiles(len(weight))
    return weight.new_zeros(count, dtype=torch.int32)


def can_fix(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether FixedProduct computes the format there: on a GPU of NVIDIA, with Triton."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and dtype in _FORMATS and find_spec("triton") is not None


def bits_of_weights(weight: Tensor) -> int:
    """Return the bits of a weight, which may be a code."""
    return _CODES.get(weight.dtype, 8 * weight.element_size())


def num_tiles(outputs: int) -> int:
    """Return the number of tiles of OUTPUTS outputs that cover all `outputs`."""
    return -(-outputs // OUTPUTS)


def num_parts(outputs: int, inputs: int, bits: int = 16) -> int:
    """Return the number of parts in which the inputs of a product are added up.

    Few outputs are split, so that all of a GPU reads the weights. Parts of weights of 8 or 4 `bits` have
    whole tiles of NARROW_INPUTS where that costs no more than half of the parts.
    """
    is_narrow = bits <= 8
    wanted = -(-(_NARROW_PROGRAMS if is_narrow else _PROGRAMS) // num_tiles(outputs))
    most = max(1, min(wanted, _MAX_PARTS, inputs // _MIN_PART))
    if not is_narrow:
        return most
    even = max(count for count in range(1, most + 1) if has_whole_tiles(inputs, count) or count == 1)
    return even if 2 * even >= most else most


def has_whole_tiles(inputs: int, parts: int) -> bool:
    """Return whether each of the parts of a sum has whole tiles of NARROW_INPUTS inputs."""
    return inputs % (NARROW_INPUTS * parts) == 0


def fixed_product_torch(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    arrived: Tensor,
    is_wide: bool = False,
) -> Tensor:
    """As fixed_product, in PyTorch: the same parts, row by row; `arrived` is unused."""
    made = summed_in_parts(
        given, weight, scales, zeros, bias, num_parts(len(weight), given.shape[1], bits_of_weights(weight))
    )
    return made if is_wide else made.to(given.dtype)


def summed_in_parts(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    parts: int,
) -> Tensor:
    """Return the float32 sums of fixed_product in PyTorch, row by row, each of them in `parts`."""
    inputs = given.shape[1]
    ends = [inputs * part // parts for part in range(parts + 1)]
    wide = _widened(weight, scales, zeros).to(given.dtype).float()
    total = given.new_zeros(len(given), len(weight), dtype=torch.float32)
    for row, sums in zip(given.float(), total, strict=True):
        for first, end in pairwise(ends):  # a copy, as the order in a sum depends on where in memory a row is
            sums += torch.mv(wide[:, first:end], row[first:end].clone())
    if weight.dtype == torch.int8:
        assert scales is not None
        total *= scales
    return total if bias is None else total + bias.float()


def _widened(weight: Tensor, scales: Tensor | None, zeros: Tensor | None) -> Tensor:
    """Return the numbers [out, in] that are multiplied: weights, or codes whose scale is that of a sum."""
    if weight.dtype != torch.uint8:
        return weight
    assert scales is not None
    if zeros is None:
        return widened_mxfp4(weight.view(*scales.shape, -1), scales)
    codes = torch.stack([weight & 15, weight >> 4], -1).view(*scales.shape, GROUP)
    return torch.addcmul(zeros[..., None].float(), codes.float() - MIDDLE, scales[..., None].float()).flatten(
        1
    )


_product = operation(
    "fixed_product(Tensor given, Tensor weight, Tensor? scales, Tensor? zeros, Tensor? bias, "
    "Tensor(a!) arrived, bool is_wide) -> Tensor",
    fixed_product_torch,
    "gencli.models.decoder.products.fixed_launch:fixed_product_triton",
)
