"""Products with codes of 8, 6, 5 and 4 bits on a CPU by the kernels of llvm_kernels.py."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.products.llvm_kernels import (
    GROUP,
    LANES,
    SCRATCH_BYTES,
    Arguments,
    CodeFormat,
    kernel,
)

_ALIGNED = 64  # bytes of a cache line and of a vector
_PACKED_AT_ONCE = 2**22  # codes
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

    def with_offsets(self) -> Codes:
        """Return the same weights with codes from 0 on."""
        if self.offsets is not None and not self.middle:
            return self
        lows = -self.middle * self.scales.float()
        return replace(self, middle=0, offsets=lows if self.offsets is None else lows + self.offsets.float())


class CompiledProduct(Product):
    """The product with codes as they are; activations are rounded to 16 bits, in groups of 32 inputs."""

    kernel = "compiled"
    is_invariant = True

    def __init__(
        self,
        weights: Codes | Int4Weights | Int8Weights,
        bias: Tensor | None = None,
        *,
        instructions: str | None = None,
    ) -> None:
        if isinstance(weights, Int4Weights):
            four = weights.unpacked(slice(None)).to(torch.uint8)
            weights = Codes(4, 8, four, weights.scales, weights.zeros)
        elif isinstance(weights, Int8Weights):
            eight, by_row = weights.codes.view(torch.uint8) ^ 128, weights.scales.dim() == 1
            groups = weights.codes.shape[1] // GROUP
            weights = Codes(
                8, 128, eight, weights.scales[:, None].expand(-1, groups) if by_row else weights.scales
            )
        self._outputs, inputs = weights.codes.shape
        self._groups, blocks = inputs // GROUP, -(-self._outputs // LANES)
        form = CodeFormat(
            weights.bits,
            weights.middle,
            _SCALES[weights.scales.dtype],
            has_offset=weights.offsets is not None,
            halves=weights.scales.shape[1] > self._groups,
        )
        self._codes = _aligned((blocks, self._groups, form.code_bytes), torch.uint8)
        step = max(1, _PACKED_AT_ONCE // (LANES * max(1, inputs)))
        for start in range(0, blocks, step):
            rows = weights.codes[start * LANES : (start + step) * LANES]
            self._codes[start : start + step] = _packed(pad(rows, (0, 0, 0, -len(rows) % LANES)), form.bits)
        scales = weights.scales.view(self._outputs, self._groups, -1).unbind(2)
        numbers = [*scales] if weights.offsets is None else [*scales, weights.offsets]
        self._scales = _aligned((blocks, self._groups, len(numbers), LANES), weights.scales.dtype)
        missing = blocks * LANES - self._outputs
        for index, part in enumerate(numbers):
            padded = pad(part, (0, 0, 0, missing)).view(blocks, LANES, self._groups)
            self._scales[:, :, index] = padded.transpose(1, 2)
        self._bias = torch.zeros(blocks * LANES)
        if bias is not None:
            self._bias[: self._outputs] = bias
        self.nbytes = self._codes.nbytes + self._scales.nbytes
        self._run = kernel(form, instructions)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        rows, given = len(given), given.contiguous()
        product = torch.empty(rows, self._outputs)
        scratch = torch.empty(rows * self._groups * SCRATCH_BYTES + _ALIGNED, dtype=torch.uint8)
        start = scratch.data_ptr()
        arguments = Arguments(
            self._codes.data_ptr(),
            self._scales.data_ptr(),
            self._bias.data_ptr(),
            given.data_ptr(),
            product.data_ptr(),
            start + -start % _ALIGNED,
            self._groups,
            rows,
            self._outputs,
        )
        self._run(ctypes.byref(arguments), torch.get_num_threads())
        return product


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
    memory = torch.empty(count + _ALIGNED, dtype=torch.uint8)
    start = -memory.data_ptr() % _ALIGNED
    return memory[start : start + count].view(dtype).view(shape)
