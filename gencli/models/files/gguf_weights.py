"""Read the weights of a GGUF file tensor by tensor, and make products of them: those of four bits as they
are stored, others widened slice by slice. Source of the layouts: ggml-quants.c of ggml-org/ggml.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.decoder.decoder_layers import Embeddings, HeldEmbeddings
from gencli.models.decoder.products.coded_weights import GROUP, Int4Product, Int4Weights
from gencli.models.decoder.products.dense_products import Float32Head, Product, adds_wide, can_pack
from gencli.models.decoder.products.product_maker import (
    EMBEDDINGS,
    HEAD,
    FixedInt4Product,
    KernelOptions,
    ProductMaker,
    check_narrow,
    choose_kernels,
)
from gencli.models.decoder.weight_readers import (
    StoredEmbeddings,
    WeightReader,
    stays_in_file,
)
from gencli.models.files.gguf_header import (
    KEPT,
    KINDS,
    GgufHead,
    Kind,
    held_tensors,
    read_gguf_head,
)
from gencli.models.files.gguf_metadata import GgufSource, sources_of
from gencli.models.files.model_files import OnBytes

_SLICE = 2**22  # numbers that are widened at a time
# Tensors that belong to the configuration.
_OF_CONFIG = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


class GgufReader(WeightReader):
    """The tensors of a file by their names in a safetensors checkpoint, converted to `dtype` on `device`."""

    def __init__(
        self,
        head: GgufHead,
        streams: Mapping[Path, BinaryIO],
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self._head, self._streams, self._sources = head, streams, sources_of(head)
        nbytes = sum(tensor.nbytes for tensor in head.tensors.values())
        super().__init__(set(self._sources) - _OF_CONFIG, nbytes, dtype, device, on_bytes)

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def kind(self, name: str) -> Kind:
        return self._find(name).tensor.kind

    def shape(self, name: str) -> tuple[int, ...]:
        return self._find(name).shape

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        for source in self.check(names, shape):
            yield from self._wide_rows(source)
        self.unread.difference_update(names)

    def stored_rows(self, names: Sequence[str], shape: Sequence[int]) -> Iterator[tuple[Kind, Rows]]:
        """Yield rows of joined matrices as they are stored, slice by slice, with their number format.

        They are [rows, bytes of a row], in the checkpoint's order. Raises ModelError for another shape.
        """
        for source in self.check(names, shape):
            for rows in self._raw_rows(source):
                yield source.tensor.kind, rows
        self.unread.difference_update(names)

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        """Return embeddings [V, H] whose rows stay in the file until they are looked up."""
        (source,) = self.check([name], shape)
        if name in self.unread:
            self.unread.discard(name)
            self._count(source.tensor.nbytes)
        stream, kind = open_regular(source.tensor.path), source.tensor.kind
        return StoredEmbeddings(source.tensor, stream, self.dtype, lambda rows: widened(rows.numpy(), kind))

    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[GgufSource]:
        sources = [self._find(name) for name in names]
        shapes = [source.shape for source in sources]
        whole = (sum(dims[0] for dims in shapes), *shapes[0][1:])
        if whole != tuple(shape) or any(dims[1:] != shapes[0][1:] for dims in shapes):
            held = ", ".join(str(list(dims)) for dims in shapes)
            raise ModelError(
                f"{self._head.path}: {', '.join(source.tensor.name for source in sources)} "
                f"{'have the shapes' if shapes[1:] else 'has the shape'} {held}; the metadata asks for "
                f"{list(shape)}{' together' if shapes[1:] else ''}."
            )
        return sources

    def _raw_rows(self, source: GgufSource) -> Iterator[Rows]:
        """Yield the stored bytes [rows, bytes of a row] slice by slice, in the checkpoint's order of rows."""
        rows, row_bytes, values = _layout(source)
        unit = rows // source.heads if source.heads else 1
        step = max(1, _SLICE // values // unit) * unit
        start = source.tensor.start + source.first * row_bytes
        for row in range(0, rows, step):
            count = min(step, rows - row)
            raw = self._bytes(source.tensor.path, start + row * row_bytes, count * row_bytes)
            self._count(raw.nbytes)
            # The file has row j of both halves of a head side by side, the checkpoint half after half.
            if source.heads:
                raw = raw.reshape(-1, unit // 2, 2, row_bytes).swapaxes(1, 2)
            yield raw.reshape(count, row_bytes)

    def _fill(self, part: GgufSource, target: Tensor) -> None:
        flat, done = target.view(-1), 0
        for rows in self._wide_rows(part):
            numbers = rows.view(-1)
            flat[done : done + len(numbers)].copy_(numbers)
            done += len(numbers)

    def _wide_rows(self, source: GgufSource) -> Iterator[Tensor]:
        """Yield the numbers [rows, values] slice by slice, in the checkpoint's order of rows."""
        for rows in self._raw_rows(source):
            numbers = widened(rows, source.tensor.kind)
            yield numbers.float() - source.added if source.added else numbers

    def _find(self, name: str) -> GgufSource:
        source = self._sources.get(name)
        if source is None:
            raise ModelError(
                f"{self._head.path} lacks the weights {name}.", hint="Is it an adapter, or part of a model?"
            )
        kind = source.tensor.kind
        if not kind.nbytes:
            formats = ", ".join(sorted(readable.name for readable in KINDS.values()))
            raise ModelError(
                f"{self._head.path}: {source.tensor.name} has the format {kind.name}, which is not read.",
                hint=f"gencli reads {formats}.",
            )
        if source.heads and (source.shape[0] % (2 * source.heads) or _layout(source)[0] != source.shape[0]):
            raise ModelError(f"{self._head.path}: {source.tensor.name} does not fit its heads.")
        return source

    def _bytes(self, path: Path, start: int, count: int) -> Rows:
        try:
            self._streams[path].seek(start)
            raw = np.fromfile(self._streams[path], np.uint8, count)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
        if len(raw) != count:
            raise ModelError(f"{path} ends within a tensor.", hint="Was it replaced while it was read?")
        return raw


@contextmanager
def open_gguf(
    path: Path, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[GgufReader]:
    """Open a file, or all parts of one, for reading its weights.

    Raises ModelError for a damaged file.
    """
    head = read_gguf_head(path)
    with ExitStack() as stack:
        streams: dict[Path, BinaryIO] = {}
        for file in {tensor.path for tensor in head.tensors.values()}:
            try:
                streams[file] = stack.enter_context(open_regular(file))
            except OSError as error:
                raise ModelError(f"{file} cannot be read: {error.strerror}.") from None
        yield GgufReader(head, streams, dtype, device, on_bytes)


def _layout(source: GgufSource) -> tuple[int, int, int]:
    """Return rows, bytes of a row, and values of a row. A vector of plain numbers has a row for each."""
    kind = source.tensor.kind
    if len(source.shape) == 1:
        rows, values = (1, source.shape[0]) if kind.is_quantized else (source.shape[0], 1)
    else:
        rows, values = math.prod(source.shape[:-1]), source.shape[-1]
    return rows, values // kind.values * kind.nbytes, values


Rows = np.ndarray[Any, np.dtype[np.uint8]]  # [rows, bytes of a row]
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def widened(rows: Rows, kind: Kind) -> Tensor:
    """Return stored rows [rows, bytes] as numbers [rows, values]: plain ones as they are, else float32."""
    if kind.name in _PLAIN:
        return torch.from_numpy(np.ascontiguousarray(rows)).view(_PLAIN[kind.name])
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind.name]))


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

    def __call__(self, inputs: Tensor) -> Tensor:
        outputs = self._inner(inputs.bfloat16()).float()
        return outputs if self._bias is None else outputs.add_(self._bias)


class JoinedProduct(Product):
    """Products with the same inputs whose outputs lie side by side: queries, keys and values, for example."""

    kernel = "joined"
    is_invariant = False

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = tuple(products)
        self.nbytes = sum(product.nbytes for product in products)

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.cat([product(inputs) for product in self._products], -1)


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
        bias, start, products = reader.joined(biases, shape[:1]) if biases else None, 0, list[Product]()
        for form, names in groupby(weights, key=lambda name: self._form(reader.kind(name), reader.dtype)):
            part = list(names)
            count = sum(reader.shape(name)[0] for name in part)
            part_bias = None if bias is None else bias[start : start + count]
            products.append(self._product(reader, form, part, (count, shape[1]), part_bias))
            start += count
        return products[0] if len(products) == 1 else JoinedProduct(products)

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
        return all(kernel.is_invariant for kernel in self.used)

    @property
    def names(self) -> tuple[str, ...]:
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
            four: Any = self.four
            product: Product = four(_groups(reader, names, shape), bias)
            return product
        if form == reader.dtype:
            return self.default(reader.joined(names, shape), bias)
        weight = reader.joined(names, shape, dtype=torch.bfloat16)
        return RoundedProduct(weight, bias, inner=self.rounded)

    def _form(self, kind: Kind, states: torch.dtype) -> _Form:
        if kind.name in KEPT:
            return "int4"
        return states if kind.name == "F32" else self.wide


def kept_maker(
    model: Path, options: KernelOptions, device: torch.device = _CPU, dtype: torch.dtype = torch.float32
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
    plain, other = (choose_kernels(Counter(), number, device, options) for number in (dtype, wide))
    dense, rounded = plain.default, other.default
    make = KeptMaker(
        dense, stacks_experts=plain.stacks_experts, head=plain.head, four=four, rounded=rounded, wide=wide
    )
    kernels: dict[_Form, type[Product]] = {"int4": four, wide: rounded, dtype: dense}
    matrices = (tensor for tensor in held_tensors(read_gguf_head(model)) if len(tensor.shape) > 1)
    used = {kernels[make._form(tensor.kind, dtype)] for tensor in matrices}
    return replace(make, used=tuple(used))


def _groups(reader: GgufReader, names: Sequence[str], shape: tuple[int, int]) -> Int4Weights:
    """Return joined matrices with the bits of the file. Raises ModelError for scales that are no numbers."""
    weights = Int4Weights(*(torch.empty(part.shape, dtype=part.dtype) for part in Int4Weights.parts(shape)))
    start = 0
    for kind, rows in reader.stored_rows(names, shape):
        for target, part in zip(weights.tensors, grouped(rows, kind).tensors, strict=True):
            target[start : start + len(rows)] = part
        start += len(rows)
    if not weights.is_finite:
        raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
    return Int4Weights(*(part.to(reader.device) for part in weights.tensors))


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


def _halves(raw: Tensor) -> Tensor:
    """Return bytes [..., 2 * N] as float16 numbers [..., N] in float32."""
    return raw.contiguous().view(torch.float16).float()


_READERS: Mapping[str, Callable[[Tensor], _Groups]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q4_K": _q4_k}
assert _READERS.keys() == KEPT
