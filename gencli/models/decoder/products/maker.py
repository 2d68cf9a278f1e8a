"""Choose the kernels of a model's products before it is loaded, by their times on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings, HeldEmbeddings, stays_in_file
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.dense import (
    Float32Head,
    PackedProduct,
    PlainProduct,
    RowPackedProduct,
    TilePackedProduct,
    adds_wide,
)
from gencli.models.decoder.products.fixed import FixedProduct, can_fix
from gencli.models.decoder.products.times import KernelTimes, Sizes
from gencli.models.onednn import can_pack, has_tiles

if TYPE_CHECKING:
    from gencli.models.decoder.reader import WeightReader

__all__ = [
    "EMBEDDINGS",
    "HEAD",
    "Invariance",
    "Kernel",
    "KernelOptions",
    "ProductMaker",
    "can_stack",
    "choose_kernels",
    "fastest_kernels",
    "kernels_of",
    "memory_of",
]

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"

Kernel = Literal["auto", "plain", "packed", "row-packed", "fixed"]
Invariance = Literal["auto", "on", "off"]

_MAX_PRICE = 1.05  # of invariant kernels, over the time of the fastest
_CLEARLY = 1.15  # times of one kernel differ by as much from one measurement to the next
_MIN_MEASURED = 2**20  # numbers in a weight; the calls cost more than a smaller one
_MAX_INPUTS = 2**20  # a damaged configuration may ask for any number; no model has as many
_ROWS = (1, 4, 8)  # the numbers of rows that are measured


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """Options for the choice of kernels.

    `rows` is the number of sequences that are computed at once. `kernel` names one kernel for all products.
    An invariant kernel gives a row the same bits among any number of rows: with `invariant` = auto such
    kernels are taken if they make a step at most 5 % longer, with on always, with off if they are fastest.
    """

    rows: int = 1
    kernel: Kernel = "auto"
    invariant: Invariance = "auto"


@dataclass(frozen=True, slots=True)
class ProductMaker:
    """Makes the products of a model. `kernels` are those of its sizes (out, in), `default` that of others.

    With `stacks_experts` the experts of a layer are one GroupedProduct, whose weights lie in one tensor.
    `head` computes the vocabulary projection where it is widened to float32: in 16 bits on a CPU.
    """

    default: type[Product]
    kernels: Mapping[tuple[int, int], type[Product]] = field(default_factory=dict)
    stacks_experts: bool = False
    head: type[Product] = PlainProduct

    @property
    def rounds_activations(self) -> bool:
        """Whether the layers' activations are rounded to bytes, with one scale for a row."""
        return False

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Return the product with `weight` [out, in]."""
        outputs, inputs = weight.shape
        return self.kernels.get((outputs, inputs), self.default)(weight, bias)

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`.

        A product that lays its weights out anew leaves the memory that they were read into to the next one.
        """
        weight = reader.joined(weights, shape, memory=reader.free)
        reader.free = None
        bias = reader.joined(biases, shape[:1]) if biases else None
        memory = memory_of(weight)
        product = self(weight, bias)
        if not isinstance(product, PlainProduct):
            reader.free = memory
        elif len(memory) > weight.numel():  # it keeps its weights, in memory that is too large for them
            product = self(weight.clone(), bias)
        return product

    def weights_of(
        self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]
    ) -> tuple[Tensor, ...]:
        """Return joined weights [out, in] as a GroupedProduct keeps them: numbers, or codes with scales."""
        return reader.codes(names, shape) or (reader.joined(names, shape),)

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H].

        They are read first. The plain matrix takes memory until the projection is made of it, while most of
        the layers' memory is still free.
        """
        weight = reader.read(EMBEDDINGS if is_tied else HEAD, shape)
        if adds_wide(weight.dtype, weight.device):
            head: Product = Float32Head(self(weight))
        else:
            head = Float32Head(self.head(weight.float())) if weight.itemsize == 2 else self(weight)
        is_shared = is_tied and isinstance(head, PlainProduct)
        if stays_in_file(weight.nbytes, reader.device) and not is_shared:
            return reader.embeddings(EMBEDDINGS, shape), head
        return HeldEmbeddings(weight if is_tied else reader.read(EMBEDDINGS, shape)), head

    @property
    def is_invariant(self) -> bool:
        """Whether the bits of a row are the same among any number of rows."""
        return all(kernel.is_invariant for kernel in (self.default, *self.kernels.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(sorted({kernel.kernel for kernel in self.kernels.values() or (self.default,)}))


def memory_of(weight: Tensor) -> Tensor:
    """Return all of the memory [N] that a weight was read into, for the next one."""
    return weight.view(-1) if weight._base is None else weight._base


def kernels_of(dtype: torch.dtype, device: torch.device) -> list[type[Product]]:
    """Return the kernels that this machine has for weights of the format; invariant ones come first."""
    if can_fix(dtype, device):
        return [FixedProduct, PlainProduct]
    if device.type != "cpu" or not can_pack(dtype):
        return [PlainProduct]
    if dtype == torch.float32:
        return [PackedProduct, RowPackedProduct, PlainProduct]
    # In bfloat16 the two packed layouts take the same time.
    return [TilePackedProduct if has_tiles() else PackedProduct, PlainProduct]


def can_stack(dtype: torch.dtype, device: torch.device, options: KernelOptions) -> bool:
    """Return whether the experts of a layer are one GroupedProduct there."""
    return can_fix(dtype, device) and options.kernel != "plain"


def choose_kernels(
    products: Counter[tuple[int, int]],
    dtype: torch.dtype,
    device: torch.device,
    options: KernelOptions,
    times: KernelTimes | None = None,
) -> ProductMaker:
    """Return the maker of products whose kernels take the least time in a step.

    `products` counts the products of a step by size (out, in). Sizes that `times` does not know are measured;
    without `times` the first kernel is taken. Raises ModelError if this machine has no kernel as asked.
    """
    possible = _possible(dtype, device, options)
    first = possible[-1] if options.invariant == "off" else possible[0]
    wide = kernels_of(torch.float32, device)
    head = next((one for one in wide if one.kernel == options.kernel), wide[0])
    make = ProductMaker(first, stacks_experts=can_stack(dtype, device, options), head=head)
    if len(possible) == 1 or times is None:
        return make
    measured = _measured(products, dtype, possible, options.rows, times)
    fastest = _fastest(measured, possible)
    steady = _fastest(measured, [one for one in possible if one.is_invariant])
    prices = [
        sum(count * measured[size][chosen[size].kernel] for size, count in products.items() if size in chosen)
        for chosen in (fastest, steady)
    ]
    if steady and options.invariant == "auto" and prices[1] <= _MAX_PRICE * prices[0]:
        return replace(make, kernels=steady)
    return replace(make, kernels=fastest)


def fastest_kernels(
    sizes: Iterable[tuple[int, int]],
    dtype: torch.dtype,
    kernels: Sequence[type[Product]],
    rows: int,
    times: KernelTimes | None,
) -> Mapping[tuple[int, int], type[Product]]:
    """Return the kernel for each size (out, in) that is worth measuring, of kernels with the same bits.

    The first one is the fastest on most machines: another is taken only if it is clearly faster.
    """
    if times is None or len(kernels) == 1:
        return {}
    measured = _measured(sizes, dtype, kernels, rows, times)
    return {
        size: kernels[0] if found[kernels[0].kernel] <= _CLEARLY * min(found.values()) else one
        for (size, one), found in zip(_fastest(measured, kernels).items(), measured.values(), strict=True)
    }


def _measured(
    sizes: Iterable[tuple[int, int]],
    dtype: torch.dtype,
    kernels: Sequence[type[Product]],
    rows: int,
    times: KernelTimes,
) -> Mapping[tuple[int, int], Mapping[str, float]]:
    """Return the times of the kernels for each size that is worth measuring."""
    known = max(size for size in _ROWS if size <= max(1, rows))
    return {
        size: times.of(Sizes(dtype, *size, known), kernels)
        for size in sizes
        if size[0] * size[1] >= _MIN_MEASURED and size[1] <= _MAX_INPUTS
    }


def _fastest(
    measured: Mapping[tuple[int, int], Mapping[str, float]], kernels: Sequence[type[Product]]
) -> dict[tuple[int, int], type[Product]]:
    """Return the fastest of the kernels for each size; {} without kernels."""
    if not kernels:
        return {}
    return {size: min(kernels, key=lambda one: times[one.kernel]) for size, times in measured.items()}


def _possible(dtype: torch.dtype, device: torch.device, options: KernelOptions) -> list[type[Product]]:
    """Return the kernels of a format that are as asked."""
    there = kernels_of(dtype, device)
    named = [one for one in there if options.kernel in ("auto", one.kernel)]
    name = f"{str(dtype).removeprefix('torch.')} on {device}"
    if not named:
        raise ModelError(
            f"`kernel` is {options.kernel}, which this machine does not have for {name}.",
            hint=f"It has {' and '.join(one.kernel for one in there)}; auto takes the fastest.",
        )
    steady = [one for one in named if one.is_invariant]
    if options.invariant == "on" and not steady:
        raise ModelError(
            f"`invariant` is on, but here the bits of a row depend on its batch in {name}"
            f"{'' if options.kernel == 'auto' else f' with `kernel` = {options.kernel}'}.",
            hint="They do not with packed weights: float32 on an x86 CPU, bfloat16 on one that computes it; "
            "with AMX set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16. On a GPU of NVIDIA they do not with Triton.",
        )
    return steady if options.invariant == "on" else named
