"""Products of a model with quantized weights: the format of each matrix, and how it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings, Int8Embeddings
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.dense import Float32Head
from gencli.models.decoder.products.fixed import can_fix
from gencli.models.decoder.products.int4 import GROUP, Int4Product, Int4Weights
from gencli.models.decoder.products.int8 import (
    FbgemmProduct,
    Int8PackProduct,
    Int8Weights,
    QlinearProduct,
    int8_kernels,
)
from gencli.models.decoder.products.maker import (
    EMBEDDINGS,
    HEAD,
    KernelOptions,
    ProductMaker,
    choose_kernels,
    fastest_kernels,
    memory_of,
)
from gencli.models.decoder.products.narrow import FixedInt4Product, FixedInt8Product
from gencli.models.decoder.products.times import KernelTimes
from gencli.models.decoder.reader import WeightReader
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.decoder.weights import SafetensorsReader

__all__ = ["QuantizedMaker", "Weights", "check_narrow", "quantized_maker", "read_weights"]

Weights = Int8Weights | Int4Weights
_KEEPING = (Int8PackProduct, FixedInt8Product, FixedInt4Product)  # products that keep the codes as they are
_HAS_BFLOAT16 = (8, 0)  # compute capability
_Kind = TypeVar("_Kind", Int8Weights, Int4Weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMaker(ProductMaker):
    """Makes products with weights of `bits` bits, 8 or 4; `is_stored` if the files hold such weights.

    With 4 bits, embeddings and vocabulary projection have 8, as have matrices whose number of inputs is no
    multiple of 32. `four` is the kernel of matrices with 4 bits; `kernels` are those of matrices with 8 bits,
    by size, and `eight` that of others. By default they are those of this CPU. Routers of experts are not
    quantized and have the kernel `default`.
    """

    bits: int
    eight: type[Product] = field(default_factory=lambda: int8_kernels()[0])
    four: type[Product] = Int4Product
    is_stored: bool = False

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`."""
        bias = reader.joined(biases, shape[:1]) if biases else None
        found = self.weights(reader, weights, shape)
        product = self._product(found, bias)
        if self.is_stored and not isinstance(product, _KEEPING):
            reader.free = memory_of(found.codes)
        return product

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        table = self.int8(reader, EMBEDDINGS, shape)
        head = self._head(table if is_tied else self.int8(reader, HEAD, shape))
        reader.free = None  # the layers' matrices are much smaller
        return Int8Embeddings(table, reader.dtype), head

    def _head(self, weights: Int8Weights) -> Product:
        """Return the vocabulary projection; it is widened where its kernel would round the logits."""
        if self._kernel(weights) is Int8PackProduct:
            return Float32Head(self.head(weights.rows(torch.arange(len(weights.scales)))))
        return Float32Head(self._product(weights, None))

    @property
    def rounds_activations(self) -> bool:
        """Whether the layers' activations are rounded to bytes, with one scale for a row."""
        return self.bits == 8 and self.eight in (FbgemmProduct, QlinearProduct)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels."""
        names = {one.kernel for one in self.kernels.values()} or {self.eight.kernel}
        return tuple(sorted(names | ({self.four.kernel} if self.bits == 4 else set())))

    def weights(self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]) -> Weights:
        """Return the joined weights of a matrix of the layers."""
        if self.bits == 4 and shape[1] % GROUP == 0:
            return read_weights(Int4Weights, reader, names, shape, is_stored=self.is_stored)
        return read_weights(Int8Weights, reader, names, shape, is_stored=self.is_stored)

    def weights_of(
        self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]
    ) -> tuple[Tensor, ...]:
        """Return the codes, scales and zeros of joined weights [out, in]."""
        return self.weights(reader, names, shape).tensors

    def int8(self, reader: WeightReader, name: str, shape: tuple[int, int]) -> Int8Weights:
        """Return weights of 8 bits."""
        return read_weights(Int8Weights, reader, [name], shape, is_stored=self.is_stored)

    def _kernel(self, weights: Weights) -> Any:
        if isinstance(weights, Int4Weights):
            return self.four
        outputs, inputs = weights.codes.shape
        return self.kernels.get((outputs, inputs), self.eight)

    def _product(self, weights: Weights, bias: Tensor | None) -> Product:
        made: Product = self._kernel(weights)(weights, bias)
        return made


def quantized_maker(
    spec: DecoderSpec,
    bits: int,
    device: torch.device,
    options: KernelOptions,
    *,
    is_stored: bool,
    dtype: torch.dtype = torch.float32,
    times: KernelTimes | None = None,
) -> QuantizedMaker:
    """Return the maker of products between states in `dtype`.

    On a CPU they have the kernels that are fastest for the spec's sizes. Without `times` nothing is measured,
    and the first kernels are taken. Raises ModelError for a device without kernels, or a kernel by name.
    """
    check_narrow(bits, dtype, device)
    if options.kernel != "auto":
        raise ModelError(
            f"`kernel` is {options.kernel}, but weights of {bits} bits have kernels of their own.",
            hint="Leave `kernel` out.",
        )
    dense = choose_kernels(Counter(), dtype, device, options)
    if device.type == "cuda":
        return QuantizedMaker(
            dense.default,
            stacks_experts=dense.stacks_experts,
            head=dense.head,
            bits=bits,
            is_stored=is_stored,
            eight=FixedInt8Product,
            four=FixedInt4Product,
        )
    eight = [
        size
        for size in spec.products
        if bits == 8 or size[1] % GROUP or size == (spec.vocab_size, spec.hidden)
    ]
    kernels = fastest_kernels(eight, torch.int8, int8_kernels(), options.rows, times)
    return QuantizedMaker(dense.default, kernels, head=dense.head, bits=bits, is_stored=is_stored)


def check_narrow(bits: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise ModelError for a device that has no kernels for weights of `bits` bits between `dtype` states."""
    if device.type == "cpu":
        return
    if device.type != "cuda":
        raise ModelError(
            f"Weights of {bits} bits run on a CPU and on CUDA, and the device is {device}.",
            hint="Give `device` = cpu.",
        )
    if not can_fix(dtype, device):
        raise ModelError(
            f"Weights of {bits} bits take a GPU of NVIDIA and the package triton.",
            hint="Install triton, leave `quantize` out, or give `device` = cpu.",
        )
    if dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) < _HAS_BFLOAT16:
        raise ModelError(
            f"{device} does not compute bfloat16, in which weights of {bits} bits would be widened.",
            hint="Give `dtype` = float16.",
        )


def read_weights(
    kind: type[_Kind], reader: WeightReader, names: Sequence[str], shape: tuple[int, int], *, is_stored: bool
) -> _Kind:
    """Return joined weights, as they are stored or quantized now.

    Raises ModelError for absent parts, other shapes or formats, and numbers that are not finite.
    """
    if is_stored and isinstance(reader, SafetensorsReader):
        memory, reader.free = reader.free, None
        parts: list[Tensor] = []
        for part in kind.parts(shape):  # codes come first
            found = [name + part.suffix for name in names]
            parts.append(reader.stored(found, part.shape, part.dtype, memory=None if parts else memory))
        made = kind(*parts)
    else:
        made = kind.of(shape, reader.slices(names, shape))
        made = kind(*(part.to(reader.device) for part in made.tensors))
    if not made.is_finite:
        raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
    return made
