"""Products of a GGUF model that keeps its bits: those of four bits as they are stored, others widened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings, HeldEmbeddings, stays_in_file
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.dense import Float32Head, adds_wide
from gencli.models.decoder.products.int4 import Int4Product, Int4Weights
from gencli.models.decoder.products.maker import EMBEDDINGS, HEAD, KernelOptions, ProductMaker, choose_kernels
from gencli.models.decoder.products.narrow import FixedInt4Product
from gencli.models.decoder.products.quantized import check_narrow
from gencli.models.decoder.reader import WeightReader
from gencli.models.gguf.groups import grouped
from gencli.models.gguf.head import read_gguf_head
from gencli.models.gguf.kinds import Kind
from gencli.models.gguf.plan import KEPT, held_tensors
from gencli.models.gguf.reader import GgufReader
from gencli.models.onednn import can_pack

__all__ = ["JoinedProduct", "KeptMaker", "RoundedProduct", "kept_maker", "wide_dtype"]

_CPU = torch.device("cpu")
_Form = Literal["int4"] | torch.dtype  # how a matrix is held


def wide_dtype() -> torch.dtype:
    """Return the number format of matrices beside kept ones: bfloat16 where this CPU computes it."""
    return torch.bfloat16 if can_pack(torch.bfloat16) else torch.float32


class RoundedProduct(Product):
    """A product with weights in bfloat16 between states in float32; activations are rounded to bfloat16."""

    kernel = "bfloat16"
    is_invariant = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, inner: type[Product]) -> None:
        self._inner, self._bias = inner(weight), bias
        self.nbytes = self._inner.nbytes

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        made = self._inner(given.bfloat16()).float()
        return made if self._bias is None else made.add_(self._bias)


class JoinedProduct(Product):
    """Products with the same inputs whose outputs lie side by side: queries, keys and values, for example."""

    kernel = "joined"
    is_invariant = False

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = tuple(products)
        self.nbytes = sum(product.nbytes for product in products)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the products [N, sum of out] with `given` [N, in]."""
        return torch.cat([product(given) for product in self._products], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMaker(ProductMaker):
    """Makes products of the blocks of a file.

    `four` is the kernel of matrices of four bits. Others are held in the format `wide`, or in float32 as they
    are stored if the states are; those in bfloat16 between states in float32 have the kernel `rounded`.
    `used` are all kernels.
    """

    four: type[Product]
    rounded: type[Product]
    wide: torch.dtype
    used: tuple[type[Product], ...] = ()

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`."""
        assert isinstance(reader, GgufReader)
        reader.check(weights, shape)
        bias, start, made = reader.joined(biases, shape[:1]) if biases else None, 0, list[Product]()
        for form, names in groupby(weights, key=lambda name: self._form(reader.kind(name), reader.dtype)):
            same = list(names)
            count = sum(reader.shape(name)[0] for name in same)
            own = None if bias is None else bias[start : start + count]
            made.append(self._product(reader, form, same, (count, shape[1]), own))
            start += count
        return made[0] if len(made) == 1 else JoinedProduct(made)

    def weights_of(
        self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]
    ) -> tuple[Tensor, ...]:
        """Return joined weights [out, in]: codes, scales and zeros, or widened unless all have four bits."""
        assert isinstance(reader, GgufReader)
        if {self._form(reader.kind(name), reader.dtype) for name in names} == {"int4"}:
            return _groups(reader, names, shape).tensors
        return (reader.joined(names, shape),)

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        assert isinstance(reader, GgufReader)
        name = EMBEDDINGS if is_tied else HEAD
        reader.check([name], shape)
        is_narrow = adds_wide(reader.dtype, reader.device)
        weight = reader.joined([name], shape, dtype=reader.dtype if is_narrow else torch.float32)
        head = Float32Head(self(weight) if is_narrow else self.head(weight))
        if stays_in_file(shape[0] * shape[1] * reader.dtype.itemsize, reader.device):
            return reader.embeddings(EMBEDDINGS, shape), head
        return HeldEmbeddings(reader.read(EMBEDDINGS, shape)), head

    @property
    def is_invariant(self) -> bool:
        """Whether the bits of a row are the same among any number of rows."""
        return all(kernel.is_invariant for kernel in self.used)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(sorted({kernel.kernel for kernel in self.used}))

    def _product(
        self,
        reader: GgufReader,
        form: _Form,
        names: Sequence[str],
        shape: tuple[int, int],
        bias: Tensor | None,
    ) -> Product:
        if form == "int4":
            made: Any = self.four
            product: Product = made(_groups(reader, names, shape), bias)
            return product
        if form == reader.dtype:
            return self.default(reader.joined(names, shape), bias)
        weight = reader.joined(names, shape, dtype=torch.bfloat16)
        return RoundedProduct(weight, bias, inner=self.rounded)

    def _form(self, kind: Kind, states: torch.dtype) -> _Form:
        """Return how a matrix of a number format is held between states of a format."""
        if kind.name in KEPT:
            return "int4"
        return states if kind.name == "F32" else self.wide


def kept_maker(
    model: Path,
    options: KernelOptions,
    device: torch.device = _CPU,
    dtype: torch.dtype = torch.float32,
) -> KeptMaker:
    """Return the maker for a file, between states in `dtype`.

    Raises ModelError for a device without kernels, or a kernel by name.
    """
    if options.kernel != "auto":
        raise ModelError(
            f"`kernel` is {options.kernel}, but weights of four bits have a kernel of their own.",
            hint="Leave `kernel` out, or widen them: `dtype` = float32.",
        )
    check_narrow(4, dtype, device)
    on_cpu = device.type == "cpu"
    wide, four = (wide_dtype(), Int4Product) if on_cpu else (dtype, FixedInt4Product)
    plain, other = (choose_kernels(Counter(), one, device, options) for one in (dtype, wide))
    dense, rounded = plain.default, other.default
    make = KeptMaker(
        dense,
        stacks_experts=plain.stacks_experts,
        head=plain.head,
        four=four,
        rounded=rounded,
        wide=wide,
    )
    kernels: dict[_Form, type[Product]] = {"int4": four, wide: rounded, dtype: dense}
    held = (one for one in held_tensors(read_gguf_head(model)) if len(one.shape) > 1)
    used = {kernels[make._form(tensor.kind, dtype)] for tensor in held}
    return replace(make, used=tuple(used))


def _groups(reader: GgufReader, names: Sequence[str], shape: tuple[int, int]) -> Int4Weights:
    """Return joined matrices with the bits of the file. Raises ModelError for scales that are no numbers."""
    made = Int4Weights(*(torch.empty(part.shape, dtype=part.dtype) for part in Int4Weights.parts(shape)))
    start = 0
    for kind, rows in reader.stored_rows(names, shape):
        for target, part in zip(made.tensors, grouped(rows, kind).tensors, strict=True):
            target[start : start + len(rows)] = part
        start += len(rows)
    if not made.is_finite:
        raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
    return Int4Weights(*(part.to(reader.device) for part in made.tensors))
