"""Choose the kernels of a model's products before it is loaded, by their times on this machine, which are
measured once and kept in the user's cache; and the format of each matrix of a quantized model.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import read_file, replaced
from gencli.helpers import is_shared
from gencli.models.decoder.decoder_layers import (
    Embeddings,
    HeldEmbeddings,
    Int8Embeddings,
    SharedEmbeddings,
)
from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.decoder.products.coded_weights import (
    GROUP,
    FbgemmProduct,
    Int4Product,
    Int4Weights,
    Int8PackProduct,
    Int8Weights,
    QlinearProduct,
    row_kernels,
)
from gencli.models.decoder.products.compiled_products import CompiledProduct, JoinedProduct, coded_rows
from gencli.models.decoder.products.dense_products import (
    FixedProduct,
    Float32Head,
    PackedProduct,
    PlainProduct,
    Product,
    RowPackedProduct,
    TilePackedProduct,
    WeightPart,
    adds_wide,
    can_fix,
    can_pack,
    counters_of,
    fixed_product,
    has_tiles,
)
from gencli.models.decoder.weight_readers import (
    SafetensorsReader,
    WeightReader,
    stays_in_file,
)

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


class FixedInt8Product(Product):
    """FixedProduct with the codes of Int8Weights: exact in 16 bits; a sum is multiplied by its scale."""

    kernel = "fixed-int8"
    is_invariant = True

    def __init__(self, weights: Int8Weights, bias: Tensor | None = None) -> None:
        self._codes, self._scales, self._bias = weights.codes, weights.scales, bias
        self.nbytes = self._codes.nbytes + self._scales.nbytes
        self._arrived = counters_of(self._codes)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], in its format."""
        return fixed_product(given, self._codes, self._scales, None, self._bias, self._arrived)

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32."""
        return fixed_product(given, self._codes, self._scales, None, self._bias, self._arrived, is_wide=True)


class FixedInt4Product(Product):
    """FixedProduct with the codes of Int4Weights; a weight is rounded to the format of the activations."""

    kernel = "fixed-int4"
    is_invariant = True

    def __init__(self, weights: Int4Weights, bias: Tensor | None = None) -> None:
        self._weights, self._bias = weights, bias
        self.nbytes = sum(part.nbytes for part in weights.tensors)
        self._arrived = counters_of(weights.codes)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], in its format."""
        codes, scales, zeros = self._weights.tensors
        return fixed_product(given, codes, scales, zeros, self._bias, self._arrived)


def int4_kernel() -> type[Product]:
    """Return the kernel of weights of 4 bits on this CPU, by what is installed: its bits are its own."""
    return CompiledProduct if missing() is None else Int4Product


def int8_kernels() -> tuple[type[Product], ...]:
    """Return the kernels of weights of 8 bits on this CPU, by what is installed; all have the same bits."""
    return (CompiledProduct,) if missing() is None else row_kernels()


Weights = Int8Weights | Int4Weights
_KEEPING = (Int8PackProduct, FixedInt8Product, FixedInt4Product)  # products that keep the codes as they are
_HAS_BFLOAT16 = (8, 0)  # compute capability
_Kind = TypeVar("_Kind", Int8Weights, Int4Weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMaker(ProductMaker):
    """Makes products with weights of `bits` bits, 8 or 4; `is_stored` if the files hold such weights.

    With 4 bits, embeddings and vocabulary projection have 8, as have values of attention and matrices whose
    number of inputs is no multiple of 32. `four` is the kernel of matrices with 4 bits; `kernels` are those
    of matrices with 8 bits, by size, and `eight` that of others. By default they are those of this CPU.
    Routers of experts are not quantized and have the kernel `default`.
    """

    bits: int
    eight: type[Product] = field(default_factory=lambda: int8_kernels()[0])
    four: type[Product] = field(default_factory=lambda: int4_kernel())
    is_stored: bool = False

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`."""
        bias, start, products = reader.joined(biases, shape[:1]) if biases else None, 0, list[Product]()
        groups = groupby(weights, key=lambda name: self._bits(reader, name, shape[1]))
        parts = [list(names) for _, names in groups]
        counts = [shape[0]]
        if len(parts) > 1:
            counts = [sum(reader.shape(name)[0] for name in names) for names in parts]
            if sum(counts) != shape[0]:
                raise ModelError(
                    f"The weights {', '.join(weights)} have {sum(counts)} outputs in all, but have to have "
                    f"{shape[0]}."
                )
        for names, count in zip(parts, counts, strict=True):
            end = start + count
            codes = self.weights(reader, names, (count, shape[1]))
            products.append(self._product(codes, None if bias is None else bias[start:end]))
            if self.is_stored and not isinstance(products[-1], _KEEPING):
                reader.free = memory_of(codes.codes)
            start = end
        return products[0] if len(products) == 1 else JoinedProduct(products)

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        parts = self._int8_parts(reader, shape) if is_tied and self.eight is CompiledProduct else None
        if parts is not None:
            product = CompiledProduct(coded_rows(shape, parts))
            return SharedEmbeddings(product, reader.dtype), Float32Head(product)
        table = self.int8(reader, [EMBEDDINGS], shape)
        head = self._head(table if is_tied else self.int8(reader, [HEAD], shape))
        reader.free = None  # the layers' matrices are much smaller
        return Int8Embeddings(table, reader.dtype), head

    def _int8_parts(self, reader: WeightReader, shape: tuple[int, int]) -> Iterator[Int8Weights] | None:
        """Return the embeddings part by part, so that they are not held twice; None without groups."""
        if shape[1] % GROUP:
            return None
        if not self.is_stored or not isinstance(reader, SafetensorsReader):
            slices = reader.slices([EMBEDDINGS], shape)
            parts = (Int8Weights.of((len(part), shape[1]), [part]) for part in slices)
        elif len(reader.shape(f"{EMBEDDINGS}_scale")) == 1:
            return None
        else:
            stored = reader.stored_slices(EMBEDDINGS, Int8Weights.parts(shape))
            parts = (Int8Weights(*tensors) for tensors in stored)
        return (_checked(part, reader, [EMBEDDINGS]) for part in parts)

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
        """Return the joined weights of a matrix of the layers, which have the same number of bits."""
        if self._bits(reader, names[0], shape[1]) == 4:
            if self.is_stored and isinstance(reader, SafetensorsReader):
                four = _stored(Int4Weights, reader, names, Int4Weights.parts(shape))
            else:
                four = Int4Weights.of(shape, reader.slices(names, shape))
            return _checked(four, reader, names)
        return self.int8(reader, names, shape)

    def weights_of(
        self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]
    ) -> tuple[Tensor, ...]:
        """Return the codes, scales and zeros of joined weights [out, in]."""
        return self.weights(reader, names, shape).tensors

    def _bits(self, reader: WeightReader, name: str, inputs: int) -> int:
        """Return the bits of a matrix of the layers.

        Values of attention have 8: with 4 they cost gemma-3-270m 12 % of perplexity, and they are few.
        """
        if self.bits == 8 or inputs % GROUP:
            return 8
        if self.is_stored and isinstance(reader, SafetensorsReader):
            return 8 if reader.shape(name)[1:] == (inputs,) else 4  # two codes of four bits are a byte
        return 8 if ".v_proj." in name else 4

    def int8(self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]) -> Int8Weights:
        """Return joined weights of 8 bits, rounded again by row where the kernel has one scale for each."""
        if self.is_stored and isinstance(reader, SafetensorsReader):
            is_stored_by_row = len(reader.shape(f"{names[0]}_scale")) == 1
            parts = Int8Weights.parts(shape, by_row=is_stored_by_row)
            weights = _stored(Int8Weights, reader, names, parts)
        else:
            weights = Int8Weights.of(shape, reader.slices(names, shape))
        return _checked(weights if self.eight is CompiledProduct else weights.by_row(), reader, names)

    def rounded(self, weight: Tensor) -> Product:
        """Return the product with a weight [out, in] in memory, rounded to 8 bits."""
        return self._product(Int8Weights.of((weight.shape[0], weight.shape[1]), [weight]), None)

    def _kernel(self, weights: Weights) -> Any:
        if isinstance(weights, Int4Weights):
            return self.four
        outputs, inputs = weights.codes.shape
        if self.eight is CompiledProduct and inputs % GROUP:
            return row_kernels()[0]  # for weights with a scale for each output
        return self.kernels.get((outputs, inputs), self.eight)

    def _product(self, weights: Weights, bias: Tensor | None) -> Product:
        product: Product = self._kernel(weights)(weights, bias)
        return product


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


def _stored(
    kind: type[_Kind], reader: SafetensorsReader, names: Sequence[str], parts: Sequence[WeightPart]
) -> _Kind:
    """Return joined weights as they are stored. Raises ModelError for absent parts or other ones."""
    memory, reader.free = reader.free, None
    tensors: list[Tensor] = []
    for part in parts:  # codes come first
        part_names = [name + part.suffix for name in names]
        free = None if tensors else memory
        tensors.append(reader.stored(part_names, part.shape, part.dtype, memory=free))
    return kind(*tensors)


def _checked(weights: _Kind, reader: WeightReader, names: Sequence[str]) -> _Kind:
    """Return the weights on the reader's device. Raises ModelError for numbers that are not finite."""
    if not weights.is_finite:
        raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
    return type(weights)(*(part.to(reader.device) for part in weights.tensors))


Seconds = Callable[[Callable[[], object]], float]

_MAX_BYTES = 1_000_000  # of the cache file
_MAX_SHAPES = 1000
# Bytes of weights that are multiplied; the time grows in proportion to them. On a GPU small ones differ.
_SLICE = {"cpu": 16 * 2**20, "cuda": 256 * 2**20}
# Bytes read in between, so that weights come from memory as in a decode step, and a GPU has work meanwhile.
_OTHERS = {"cpu": 32 * 2**20, "cuda": 256 * 2**20}
_CPU = torch.device("cpu")
_ROUNDS = 4
_ISA = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a product: `rows` rows with a weight [out, in] of a number format."""

    dtype: torch.dtype
    outputs: int
    inputs: int
    rows: int

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.outputs}x{self.inputs}, {self.rows} rows"


class KernelTimes:
    """Microseconds of each kernel by shape, of one device. `path` None: nothing is kept.

    `seconds` calls a function that computes there, and returns the time that the device took.
    """

    def __init__(
        self,
        path: Path | None = None,
        entries: Mapping[str, Mapping[str, float]] | None = None,
        *,
        device: torch.device = _CPU,
        seconds: Seconds | None = None,
    ) -> None:
        self._path, self._entries, self._is_changed = path, dict(entries or {}), False
        self._device = device
        self._seconds = seconds or (host_seconds if device.type == "cpu" else event_seconds)

    @property
    def entries(self) -> Mapping[str, Mapping[str, float]]:
        """The times by shape, as text."""
        return self._entries

    def of(self, sizes: Sizes, kernels: Sequence[type[Product]]) -> Mapping[str, float]:
        """Return the microseconds of each kernel; they are measured if they are unknown."""
        known = self._entries.get(str(sizes), {})
        if not {kernel.kernel for kernel in kernels} <= known.keys():
            self._entries[str(sizes)] = known = measure(sizes, kernels, self._device, self._seconds)
            self._is_changed = True
        return known

    def write(self) -> None:
        """Write new times to the user's cache. A failed write is ignored: they are measured again.

        Times of a CPU whose cores are shared are not kept: a product on two threads waits for both.
        """
        if self._path is None or not self._is_changed or (self._device.type == "cpu" and is_shared()):
            return
        machines = _read(self._path)
        machines[_machine(self._device)] = dict(list(self._entries.items())[-_MAX_SHAPES:])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(self._path, pipes=False) as file:
                file.write(json.dumps(machines, indent=1).encode())


def read_times(device: torch.device = _CPU) -> KernelTimes:
    """Return the times of a CPU or GPU of this machine in the user's cache; none if it cannot be read."""
    from platformdirs import user_cache_path

    path = user_cache_path("gencli") / "kernels.json"
    entries = _read(path).get(_machine(device))
    return KernelTimes(path, entries if _is_table(entries) else None, device=device)


def host_seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def event_seconds(run: Callable[[], object]) -> float:
    """Return how long a GPU computes what a call launches, if it has work until then."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


def measure(
    sizes: Sizes, kernels: Sequence[type[Product]], device: torch.device, seconds: Seconds
) -> dict[str, float]:
    """Return the microseconds of each kernel, the best of a few calls in turns.

    Only a slice of a large weight is multiplied; the time of the whole is in proportion.
    """
    row_bytes = sizes.inputs * sizes.dtype.itemsize
    outputs = max(1, min(sizes.outputs, _SLICE[device.type] // row_bytes))
    weight: Any = torch.ones(outputs, sizes.inputs, dtype=sizes.dtype, device=device)
    if sizes.dtype == torch.int8:
        weight = Int8Weights(weight, torch.ones(outputs, device=device))
    products = {kernel.kernel: kernel(weight) for kernel in kernels}
    is_float = sizes.dtype.is_floating_point
    dtype = sizes.dtype if is_float else torch.float32
    given = torch.ones(sizes.rows, sizes.inputs, dtype=dtype, device=device)
    others = torch.zeros(_OTHERS[device.type] // 4, device=device)
    best = dict.fromkeys(products, float("inf"))
    # An event is one of the current device, which another one's work does not delay.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        for round_ in range(_ROUNDS + 1):  # the first one warms up
            for name, product in products.items():
                others.sum()
                spent = seconds(partial(product, given))
                if round_:
                    best[name] = min(best[name], spent)
    whole = sizes.outputs / outputs
    return {name: round(seconds * whole * 1e6, 1) for name, seconds in best.items()}


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_file(path, _MAX_BYTES))
        return found if isinstance(found, dict) else {}
    return {}


def _is_table(entries: Any) -> bool:
    return isinstance(entries, dict) and all(
        isinstance(times, dict) and all(isinstance(one, int | float) for one in times.values())
        for times in entries.values()
    )


def _machine(device: torch.device) -> str:
    """Return what decides the times: processor, PyTorch, threads, and variables that limit instructions."""
    if device.type == "cuda":
        return ", ".join((torch.cuda.get_device_name(device), f"torch {torch.__version__}", *_triton()))
    found: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    limits = [f"{name}={os.environ[name]}" for name in _ISA if name in os.environ]
    about = (found.get("cpu_name") or platform.processor(), f"{found.get('num_logical_cores')} cores")
    return ", ".join(
        map(str, (*about, f"torch {torch.__version__}", f"{torch.get_num_threads()} threads", *limits))
    )


def _triton() -> list[str]:
    """Return Triton's release; none where it is not installed, or not under this name."""
    with suppress(PackageNotFoundError):
        return [f"triton {version('triton')}"]
    return []
