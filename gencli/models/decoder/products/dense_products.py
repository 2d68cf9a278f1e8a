"""Products with weights in the format of the activations: the interface, plain and packed in oneDNN's
layout on a CPU; on CUDA with an order of sums that does not depend on the number of rows, also for a
mixture of experts and for MXFP4 (OCP Microscaling Formats, 1.0), numbers of four bits with a scale for
each 32 of them.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from gencli.models.decoder.families import Activation
from gencli.models.decoder.kernels.layer_kernels import Norm, added_normed, gated, normed
from processors.kernels.operations import operation


@dataclass(frozen=True, slots=True)
class WeightPart:
    """A stored tensor of a quantized matrix. Its name is that of the matrix and `suffix`."""

    suffix: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class Product(ABC):
    """x @ weight.T + bias: [N, in] -> [N, out].

    `kernel` is its name for users, `is_invariant` whether the bits of a row are the same among any number of
    rows, `nbytes` the bytes of memory that its weights take.
    """

    kernel: ClassVar[str]
    is_invariant: ClassVar[bool]
    nbytes: int

    @abstractmethod
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Take the weight [out, in] and the bias [out]."""

    @abstractmethod
    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out] in float32, as it was added up, whatever the format of `given`."""
        return self(given.float())

    def of_norm(
        self, states: Tensor, more: Tensor | None, post: Norm | None, scale: float, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Return the residual sum states + scale * post(more), [N, in], and the product with its norm."""
        if more is None:
            return states, self(normed(states, norm))
        total, normalized = added_normed(states, more, post, scale, norm)
        return total, self(normalized)

    def of_gate(self, gate_up: Tensor, activation: Activation, limit: float) -> Tensor:
        """Return the product with act(gate) * up of `gate_up` [N, 2 * in]: gates, then up."""
        return self(gated(gate_up, activation, limit))


# From this number of inputs on, the packed product of a single row adds up in another order.
_MIN_SPLIT_INPUTS = 2048


class PlainProduct(Product):
    """The plain product of PyTorch. `weight` is [out, in]."""

    kernel = "plain"
    is_invariant = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias, self.nbytes = weight, bias, weight.nbytes

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return linear(given, self._weight, self._bias)

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32."""
        return wide_linear(given, self._weight, self._bias)


class RowPackedProduct(Product):
    """The product with weights in the layout that oneDNN chooses for a single row.

    A single row takes up to a quarter less time than with PackedProduct, several rows take more. The bits of
    a row depend on the number of rows.
    """

    kernel = "row-packed"
    is_invariant = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._weight, self._bias = torch.ops.mkldnn._reorder_linear_weight(weight, 1), bias

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._weight, self._bias, "none", [], "")
        return product


class PackedProduct(Product):
    """The product with weights in oneDNN's layout; a row's bits do not depend on the number of rows.

    A single row gets a second one where the kernel would otherwise split the sum. Both cost the same, because
    reading the weights takes the time.
    """

    kernel = "packed"
    is_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)
        self._bias = bias
        self._is_split = weight.shape[1] >= _MIN_SPLIT_INPUTS

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        if self._is_split and len(given) == 1:
            return self(pad(given, (0, 0, 0, 1)))[:1]
        product: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._weight, self._bias, "none", [], "")
        return product


class TilePackedProduct(PackedProduct):
    """PackedProduct in bfloat16 on a CPU with AMX, where the bits of a row depend on the number of rows.

    oneDNN adds up in other blocks there, by the number of rows and the size of the weights. They are equal
    with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16.
    """

    is_invariant = False


class Float32Head(Product):
    """A vocabulary projection whose results are float32, whatever the format of the states.

    Logits in 16 bits have exact ties: with 8 bits of precision in one of twenty steps at the top.
    """

    kernel = "float32"
    is_invariant = False

    def __init__(self, inner: Product) -> None:
        self._inner, self.nbytes = inner, inner.nbytes

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32, with `given` [N, in]."""
        return self._inner.wide(given)


def wide_linear(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product [N, out], float32, of `given` [N, in] and `weight` [out, in]; 16 bits are widened
    only where their products do not give the float32 sums.
    """
    if given.dtype != weight.dtype or not adds_wide(given.dtype, given.device):
        return linear(given.float(), weight.float(), bias)
    sums = torch.mm(given, weight.t(), out_dtype=torch.float32)
    return sums if bias is None else sums.add_(bias)


def adds_wide(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether products of 16-bit numbers give the float32 sums there: on a GPU of NVIDIA."""
    return device.type == "cuda" and torch.version.hip is None and dtype in (torch.bfloat16, torch.float16)


# Projections of Llama-like models whose weights are only read by the matrix product.
_NAMES = frozenset("q_proj k_proj v_proj o_proj qkv_proj gate_proj up_proj down_proj gate_up_proj".split())
_MIN_WEIGHTS = 2**18  # numbers in a matrix; a smaller one fits the CPU cache and gains nothing
_BF16_LIMITS = ("BF16", "FP16", "AMX", "AVX10")  # parts of the names of oneDNN's limits with bfloat16
_X86_BF16 = frozenset(("avx512_bf16", "amx_bf16"))
PACKED_ROWS = 8  # batch size that oneDNN chooses the layout for; it is correct for any


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Return whether this machine and PyTorch support packed weights of the format.

    bfloat16 needs a CPU that computes it; elsewhere the packed layout is the plain one.
    """
    if dtype != torch.float32 and not (dtype == torch.bfloat16 and _X86_BF16 & _cpu_features()):
        return False
    has_calls = all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
    return platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn and has_calls


def has_tiles() -> bool:
    """Return whether bfloat16 products use the tiles of AMX, whose sums depend on the number of rows."""
    return "amx_bf16" in _cpu_features() and all("AMX" in limit for limit in _limits())


def _cpu_features() -> set[str]:
    """Return the features that the CPU has; none if oneDNN is limited to instructions without bfloat16."""
    if not all(any(part in limit for part in _BF16_LIMITS) for limit in _limits()):
        return set()
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return {name for name, has in found.items() if has is True}


def _limits() -> list[str]:
    """Return the limits of oneDNN's instructions that the environment sets."""
    found = (os.environ.get(name, "").upper() for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"))
    return [limit for limit in found if limit not in ("", "DEFAULT", "ALL")]


class PackedLinear(nn.Module):
    """A linear layer [..., in] -> [..., out] for inference. `weight` is a meta tensor without data."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.weight = torch.empty_like(linear.weight, device="meta")
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), PACKED_ROWS)

    def forward(self, given: Tensor) -> Tensor:
        """Return the linear layer's output."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._packed, self.bias, "none", [], "")
        return made


def pack(model: nn.Module) -> Any:
    """Replace the large projections of a model in place, freeing each one's weights; return the model."""
    if not can_pack():
        return model
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if name in _NAMES and isinstance(child, nn.Linear) and _is_packable(child):
                setattr(part, name, PackedLinear(child))
    return model


def _is_packable(child: nn.Linear) -> bool:
    return (
        type(child) is nn.Linear
        and child.weight.dtype == torch.float32
        and child.weight.device.type == "cpu"
        and child.weight.numel() >= _MIN_WEIGHTS
        and not child._forward_hooks
        and not child._forward_pre_hooks
    )


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


SPLIT_PROGRAMS = 1024  # up to so many programs each part of a sum is computed by one of its own


class GroupedProduct:
    """The products of E experts, x @ weight[e].T, with FixedProduct's order of sums.

    `weight` is [E, out, in], or codes with scales, and zeros in groups of inputs, as fixed_product takes them
    for one expert. `bias` is [E, out]. The weights of an expert without rows are not read. One launch, of a
    size that depends on shapes alone.
    """

    kernel = "grouped"

    def __init__(
        self,
        weight: Tensor,
        scales: Tensor | None = None,
        zeros: Tensor | None = None,
        *,
        bias: Tensor | None = None,
    ) -> None:
        self._weight, self._scales, self._zeros, self._bias = weight, scales, zeros, bias
        self.nbytes = sum(part.nbytes for part in (weight, scales, zeros) if part is not None)
        self._arrived = weight.new_zeros(SPLIT_PROGRAMS, dtype=torch.int32)

    def rows_of_tile(self, pairs: int) -> int:
        """Return how many pairs of one expert a program multiplies: one tile of rows, or several.

        `pairs` counts those of all experts. A program takes several tiles if they would be at least half full
        with the average expert's pairs. Each tile is computed as if it were alone.
        """
        several = ROWS * TILES[bits_of_weights(self._weight)]
        return several if 2 * pairs >= several * len(self._weight) else ROWS

    def __call__(self, given: Tensor, lists: Tensor, tiles: Tensor, block: int, fan: int) -> Tensor:
        """Return the products [N * fan, out] of `given` [N, in].

        Pair p is row p // fan of `given`. Which expert multiplies it is told by `lists` and `tiles`, which
        have `block` pairs at most: what `routed` returns.
        """
        return grouped_product(
            given,
            (self._weight, self._scales, self._zeros, self._bias),
            lists,
            tiles,
            block,
            fan,
            self._arrived,
        )


def grouped_product(
    given: Tensor,
    weights: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
    lists: Tensor,
    tiles: Tensor,
    block: int,
    fan: int,
    arrived: Tensor,
) -> Tensor:
    """Return the products of GroupedProduct; `arrived` are its counters, SPLIT_PROGRAMS zeros."""
    made: Tensor = _grouped_product(given.contiguous(), *weights, lists, tiles, block, fan, arrived)
    return made


def num_parts_grouped(pairs: int, lists: Tensor, weight: Tensor) -> int:
    """Return the number of parts of a sum. It depends on the weight's shape and the experts of a row alone.

    A row alone has as many programs as it has experts, times the tiles of their outputs.
    """
    _, outputs, inputs = weight.shape
    used = max(1, pairs // max(1, lists.shape[1]))
    inputs *= 2 if weight.dtype == torch.uint8 else 1
    return num_parts(outputs * used, inputs, bits_of_weights(weight))


def grouped_product_torch(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    lists: Tensor,
    tiles: Tensor,
    block: int,
    fan: int,
    arrived: Tensor,
) -> Tensor:
    """As grouped_product, in PyTorch: tile by tile; `arrived` is unused."""
    made = given.new_empty(len(given) * fan, weight.shape[1])
    parts = num_parts_grouped(len(made), lists, weight)
    for expert, first, count in tiles.tolist():
        pairs = lists[expert, first : first + count].long()
        scale, zero, own = (None if part is None else part[expert] for part in (scales, zeros, bias))
        sums = summed_in_parts(given[pairs // fan], weight[expert], scale, zero, own, parts)
        made[pairs] = sums.to(made.dtype)
    return made


_grouped_product = operation(
    "grouped_product(Tensor given, Tensor weight, Tensor? scales, Tensor? zeros, Tensor? bias, Tensor lists, "
    "Tensor tiles, int block, int fan, Tensor(a!) arrived) -> Tensor",
    grouped_product_torch,
    "gencli.models.decoder.products.grouped_triton:grouped_product_triton",
)


_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor([*_POSITIVE, *(-value for value in _POSITIVE)])
_BIAS = 127  # the scale whose factor is 1


def widened_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """Return the numbers [out, in] in float32: value(code) * 2^(scale - 127).

    `blocks` [out, in / 32, 16] uint8 have two codes a byte, the lower bits first, and `scales` [out, in / 32]
    uint8 are those of 32 numbers.
    """
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(2)
    return torch.ldexp(_VALUES[codes.int()], scales.int()[..., None] - _BIAS).flatten(1)
