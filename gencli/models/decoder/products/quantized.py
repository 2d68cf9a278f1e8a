"""Products of a model with quantized weights: the format of each matrix, and how it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings, Int8Embeddings
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.int4 import GROUP, Int4Product, Int4Weights
from gencli.models.decoder.products.int8 import Int8PackProduct, Int8Weights, int8_kernels
from gencli.models.decoder.products.maker import (
    EMBEDDINGS,
    HEAD,
    KernelOptions,
    ProductMaker,
    choose_kernels,
    fastest_kernels,
    memory_of,
)
from gencli.models.decoder.products.times import KernelTimes
from gencli.models.decoder.reader import WeightReader
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.decoder.weights import SafetensorsReader

__all__ = ["QuantizedMaker", "Weights", "quantized_maker", "read_weights"]

Weights = Int8Weights | Int4Weights
_Kind = TypeVar("_Kind", Int8Weights, Int4Weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMaker(ProductMaker):
    """Makes products with weights of `bits` bits, 8 or 4; `is_stored` if the files hold such weights.

    With 4 bits, embeddings and vocabulary projection have 8, as have matrices whose number of inputs is no
    multiple of 32. `kernels` are those of matrices with 8 bits, by size; another size has the first kernel of
    this CPU. Routers of experts are not quantized and have the kernel `default`.
    """

    bits: int
    is_stored: bool = False

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`."""
        bias = reader.joined(biases, shape[:1]) if biases else None
        found = self.weights(reader, weights, shape)
        product = self._product(found, bias)
        if self.is_stored and not isinstance(product, Int8PackProduct):  # which keeps the codes
            reader.free = memory_of(found.codes)
        return product

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        table = self.int8(reader, EMBEDDINGS, shape)
        head = self._product(table if is_tied else self.int8(reader, HEAD, shape), None)
        reader.free = None  # the layers' matrices are much smaller
        return Int8Embeddings(table), head

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels."""
        names = {one.kernel for one in self.kernels.values()} or {int8_kernels()[0].kernel}
        return tuple(sorted(names | ({Int4Product.kernel} if self.bits == 4 else set())))

    def weights(self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]) -> Weights:
        """Return the joined weights of a matrix of the layers."""
        if self.bits == 4 and shape[1] % GROUP == 0:
            return read_weights(Int4Weights, reader, names, shape, is_stored=self.is_stored)
        return read_weights(Int8Weights, reader, names, shape, is_stored=self.is_stored)

    def int8(self, reader: WeightReader, name: str, shape: tuple[int, int]) -> Int8Weights:
        """Return weights of 8 bits."""
        return read_weights(Int8Weights, reader, [name], shape, is_stored=self.is_stored)

    def _product(self, weights: Weights, bias: Tensor | None) -> Product:
        if isinstance(weights, Int4Weights):
            return Int4Product(weights, bias)
        outputs, inputs = weights.codes.shape
        kernel: Any = self.kernels.get((outputs, inputs), int8_kernels()[0])
        made: Product = kernel(weights, bias)
        return made


def quantized_maker(
    spec: DecoderSpec,
    bits: int,
    device: torch.device,
    options: KernelOptions,
    *,
    is_stored: bool,
    times: KernelTimes | None = None,
) -> QuantizedMaker:
    """Return the maker of products on a CPU, with the kernels that are fastest for the spec's sizes.

    Without `times` nothing is measured, and the first kernels are taken. Raises ModelError for another
    device, or a kernel by name.
    """
    if device.type != "cpu":
        raise ModelError(
            f"Weights of {bits} bits run on a CPU, and the device is {device}.", hint="Give `device` = cpu."
        )
    if options.kernel != "auto":
        raise ModelError(
            f"`kernel` is {options.kernel}, but weights of {bits} bits have kernels of their own.",
            hint="Leave `kernel` out.",
        )
    dense = choose_kernels(Counter(), torch.float32, device, options)
    eight = [
        size
        for size in spec.products
        if bits == 8 or size[1] % GROUP or size == (spec.vocab_size, spec.hidden)
    ]
    kernels = fastest_kernels(eight, torch.int8, int8_kernels(), options.rows, times)
    return QuantizedMaker(dense.default, kernels, bits=bits, is_stored=is_stored)


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
    if not made.is_finite:
        raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
    return made
