"""Products with codes of 8, 6, 5 and 4 bits on a CPU by the kernels of llvm_kernels.py."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import pad

from gencli.models.decoder.families import Activation
from gencli.models.decoder.kernels.layer_kernels import Norm
from gencli.models.decoder.kernels.llvm_code import ALIGNED, LANES
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.products.llvm_kernels import (
    GROUP,
    SCRATCH_BYTES,
    CodeFormat,
    Inputs,
    ProductArguments,
    kernel,
)

_GATES: dict[Activation, Inputs] = {"silu": Inputs.SILU, "gelu_tanh": Inputs.GELU_TANH}
_PACKED_AT_ONCE = 2**18  # codes; a few times as many bytes are temporary
_SCALES = {torch.float16: "half", torch.bfloat16: "bfloat", torch.float32: "float"}


@dataclass(frozen=True, slots=True)
class Codes:
    """Weights (code - `middle`) * scale + offset, with codes of `bits` bits, 8, 6, 5 or 4.

    `codes` [out, in] are uint8. `scales` [out, in / 32], or [out, in / 16], and `offsets` [out, in / 32] are
    float16, bfloat16 or float32; there are no offsets beside scales of 16 inputs.
    """

    bits: int
    middle: int
    codes: Tensor
    scales: Tensor
    offsets: Tensor | None = None

    def rows(self, rows: slice) -> Codes:
        """Return some rows."""
        offsets = None if self.offsets is None else self.offsets[rows]
        return replace(self, codes=self.codes[rows], scales=self.scales[rows], offsets=offsets)

    def followed_by(self, more: Codes) -> Codes:
        """Return the rows with more of the same format behind them."""
        offsets = None
        if self.offsets is not None and more.offsets is not None:
            offsets = torch.cat([self.offsets, more.offsets])
        codes, scales = torch.cat([self.codes, more.codes]), torch.cat([self.scales, more.scales])
        return replace(self, codes=codes, scales=scales, offsets=offsets)

    def with_offsets(self) -> Codes:
        """Return the same weights with codes from 0 on."""
        if self.offsets is not None and not self.middle:
            return self
        lows = -self.middle * self.scales.float()
        return replace(self, middle=0, offsets=lows if self.offsets is None else lows + self.offsets.float())


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Weights [out, in] whose rows are `parts`, one after the other, so that no matrix is held twice."""

    shape: tuple[int, int]
    parts: Iterable[Codes]


class CompiledProduct(Product):
    """The product with codes as they are; activations are rounded to 16 bits, in groups of 32 inputs."""

    kernel = "compiled"
    is_invariant = True

    def __init__(
        self,
        weights: CodedRows | Codes | Int4Weights | Int8Weights,
        bias: Tensor | None = None,
        *,
        instructions: str | None = None,
    ) -> None:
        rows = weights if isinstance(weights, CodedRows) else _rows_of(weights)
        self._outputs, inputs = rows.shape
        self._groups, blocks = inputs // GROUP, -(-self._outputs // LANES)
        parts, start = _whole_blocks(rows.parts), 0
        first = next(parts)
        form = CodeFormat(
            first.bits,
            first.middle,
            _SCALES[first.scales.dtype],
            has_offset=first.offsets is not None,
            halves=first.scales.shape[1] > self._groups,
        )
        self._codes = _aligned((blocks, self._groups, form.code_bytes), torch.uint8)
        count = 1 + form.halves + form.has_offset
        self._scales = _aligned((blocks, self._groups, count, LANES), first.scales.dtype)
        for part in chain([first], parts):
            end, missing = start + -(-len(part.codes) // LANES), (0, 0, 0, -len(part.codes) % LANES)
            self._codes[start:end] = _packed(pad(part.codes, missing), form.bits)
            scales = part.scales.view(len(part.scales), self._groups, -1).unbind(2)
            for index, numbers in enumerate(scales if part.offsets is None else [*scales, part.offsets]):
                padded = pad(numbers, missing).view(-1, LANES, self._groups)
                self._scales[start:end, :, index] = padded.transpose(1, 2)
            start = end
        self._bias = torch.zeros(blocks * LANES)
        if bias is not None:
            self._bias[: self._outputs] = bias
        self.nbytes = self._codes.nbytes + self._scales.nbytes
        self._addresses = tuple(part.data_ptr() for part in (self._codes, self._scales, self._bias))
        self._run = kernel(form, instructions)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        product = torch.empty(len(given), self._outputs)
        self.write(product, 0, Inputs.PLAIN, given)
        return product

    def rows(self, ids: Tensor) -> Tensor:
        """Return the weights [N, in] of the outputs `ids` [N], float32, if they are those of Int8Weights."""
        block, lane = ids // LANES, ids % LANES
        codes = self._codes.view(-1, self._groups, 8, LANES, 4)[block, :, :, lane].flatten(2)
        scales = self._scales[block, :, 0, lane].float()
        return (codes.float() - 128).mul_(scales[..., None]).flatten(1)

    def of_norm(
        self, states: Tensor, more: Tensor | None, post: Norm | None, scale: float, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        return _of_norm([self], states, more, post, scale, norm)

    def of_gate(self, gate_up: Tensor, activation: Activation, limit: float) -> Tensor:
        if activation not in _GATES:
            return super().of_gate(gate_up, activation, limit)
        product = torch.empty(len(gate_up), self._outputs)
        self.write(product, 0, _GATES[activation], gate_up)
        return product

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return self._outputs

    def write(
        self,
        target: Tensor,
        column: int,
        inputs: Inputs,
        x: Tensor,
        more: Tensor | None = None,
        post: Norm | None = None,
        factor: float = 1.0,
        norm: Norm | None = None,
        total: Tensor | None = None,
    ) -> None:
        """Write the product to the columns of `target` [N, ...] from `column` on; see Inputs."""
        rows, x = len(target), x.contiguous()
        scratch = torch.empty(rows * self._groups * SCRATCH_BYTES + ALIGNED, dtype=torch.uint8)
        start = scratch.data_ptr()
        arguments = ProductArguments(
            *self._addresses,
            x.data_ptr(),
            target.data_ptr() + 4 * column,
            start + -start % ALIGNED,
            None if more is None else more.data_ptr(),
            None if post is None else post.weight.data_ptr(),
            None if norm is None else norm.weight.data_ptr(),
            None if total is None else total.data_ptr(),
            self._groups,
            rows,
            self._outputs,
            target.shape[1],
            inputs,
            factor,
            0.0 if post is None else post.eps,
            0.0 if norm is None else norm.eps,
        )
        self._run(ctypes.byref(arguments), torch.get_num_threads())


class JoinedProduct(Product):
    """Products with the same inputs whose outputs lie side by side: queries, keys and values, for example."""

    kernel = "joined"
    is_invariant = False

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = tuple(products)
        self.nbytes = sum(product.nbytes for product in products)

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.cat([product(inputs) for product in self._products], -1)

    def of_norm(
        self, states: Tensor, more: Tensor | None, post: Norm | None, scale: float, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        compiled = [product for product in self._products if isinstance(product, CompiledProduct)]
        if len(compiled) < len(self._products):
            return super().of_norm(states, more, post, scale, norm)
        return _of_norm(compiled, states, more, post, scale, norm)


def _of_norm(
    products: Sequence[CompiledProduct],
    states: Tensor,
    more: Tensor | None,
    post: Norm | None,
    scale: float,
    norm: Norm,
) -> tuple[Tensor, Tensor]:
    """Return the residual sum and the products side by side; each computes the sum and its norm anew."""
    joined, column = torch.empty(len(states), sum(product.outputs for product in products)), 0
    inputs = Inputs.NORMED if more is None else Inputs.SUMMED if post is None else Inputs.POST_NORMED
    total = None if more is None else torch.empty_like(states)
    for product in products:
        product.write(joined, column, inputs, states, more, post, scale, norm, total)
        column += product.outputs
    return states if total is None else total, joined


def coded_rows(shape: tuple[int, int], parts: Iterable[Int8Weights]) -> CodedRows:
    """Return weights [out, in] that come part by part."""
    return CodedRows(shape, (_coded(part, slice(None)) for part in parts))


def _rows_of(weights: Codes | Int4Weights | Int8Weights) -> CodedRows:
    """Return weights part by part: as codes and scales they take more memory."""
    outputs, inputs = weights.codes.shape
    if isinstance(weights, Int4Weights):
        inputs *= 2
    step = max(1, _PACKED_AT_ONCE // (LANES * max(1, inputs))) * LANES
    slices = [slice(start, start + step) for start in range(0, outputs, step)]
    return CodedRows((outputs, inputs), (_coded(weights, part) for part in slices))


def _coded(weights: Codes | Int4Weights | Int8Weights, rows: slice) -> Codes:
    """Return rows of weights as codes and scales."""
    if isinstance(weights, Codes):
        return weights.rows(rows)
    scales = weights.scales[rows]
    if isinstance(weights, Int4Weights):
        return Codes(4, 8, weights.unpacked(rows), scales, weights.zeros[rows])
    codes = weights.codes[rows].view(torch.uint8) ^ 128
    by_group = scales if scales.dim() == 2 else scales[:, None].expand(-1, codes.shape[1] // GROUP)
    return Codes(8, 128, codes, by_group)


def _whole_blocks(parts: Iterable[Codes]) -> Iterator[Codes]:
    """Yield the same rows with whole blocks of outputs in all parts but the last one."""
    rest: Codes | None = None
    for part in parts:
        rows = part if rest is None else rest.followed_by(part)
        whole = len(rows.codes) // LANES * LANES
        if whole:
            yield rows.rows(slice(whole))
        rest = rows.rows(slice(whole, None)) if whole < len(rows.codes) else None
    if rest is not None:
        yield rest


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Return codes [16 n, in] as blocks [n, groups, bytes of a block]."""
    words = codes.view(-1, LANES, codes.shape[1] // GROUP, 8, 4).permute(0, 2, 3, 1, 4)
    if bits < 8:
        low = words & 15
        parts = [low[:, :, ::2] | low[:, :, 1::2] << 4]
        shifts = torch.arange(8, dtype=torch.uint8)[:, None, None]
        for bit in range(4, bits):
            parts.append((((words >> bit) & 1) << shifts).sum(2, keepdim=True, dtype=torch.uint8))
        words = torch.cat(parts, 2)
    return words.flatten(2)


def _aligned(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a tensor that begins at a cache line."""
    count = torch.Size(shape).numel() * dtype.itemsize
    memory = torch.empty(count + ALIGNED, dtype=torch.uint8)
    start = -memory.data_ptr() % ALIGNED
    return memory[start : start + count].view(dtype).view(shape)
