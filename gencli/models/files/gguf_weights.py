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
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.decoder.decoder_layers import Embeddings, HeldEmbeddings
from gencli.models.decoder.products.coded_weights import Int4Weights
from gencli.models.decoder.products.compiled_products import (
    CodedRows,
    Codes,
    CompiledProduct,
    JoinedProduct,
)
from gencli.models.decoder.products.dense_products import GROUP, Float32Head, Product, adds_wide, can_pack
from gencli.models.decoder.products.product_maker import (
    EMBEDDINGS,
    HEAD,
    FixedInt4Product,
    KernelOptions,
    ProductMaker,
    check_narrow,
    choose_kernels,
    int4_kernel,
)
from gencli.models.decoder.weight_readers import (
    StoredEmbeddings,
    WeightReader,
    stays_in_file,
)
from gencli.models.files.gguf_header import KINDS, GgufHead, Kind, held_tensors, kept_bits, read_gguf_head
from gencli.models.files.gguf_metadata import GgufSource, sources_of
from gencli.models.files.model_files import OnBytes

_SLICE = 2**19  # numbers that are read at a time; widening them takes a few times as many bytes
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
            path = source.tensor.path
            try:
                self._streams[path].seek(start + row * row_bytes)
                raw = np.fromfile(self._streams[path], np.uint8, count * row_bytes)
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
            if len(raw) != count * row_bytes:
                raise ModelError(f"{path} ends within a tensor.", hint="Was it replaced while it was read?")
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
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def widened(rows: Rows, kind: Kind) -> Tensor:
    """Return stored rows [rows, bytes] as numbers [rows, values]: plain ones as they are, else float32."""
    if kind.name in _PLAIN:
        return torch.from_numpy(np.ascontiguousarray(rows)).view(_PLAIN[kind.name])
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind.name]))


_CPU = torch.device("cpu")
_Form = str | torch.dtype  # how a matrix is held: the number format of its codes, "int4", or numbers


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMaker(ProductMaker):
    """Makes products of the blocks of a file.

    `kept` are the number formats that are held as they are stored, with the kernel `coded`. Others are held
    in the format `wide`, or in float32 as they are stored if the states are; those in bfloat16 between states
    in float32 have the kernel `rounded`. `used` are all kernels.
    """

    kept: frozenset[str]
    coded: type[Product]
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
            part_shape, part_bias = (count, shape[1]), None if bias is None else bias[start : start + count]
            start += count
            if isinstance(form, str):
                products.append(self._coded_product(reader, form, part, part_shape, part_bias))
            elif form == reader.dtype:
                products.append(self.default(reader.joined(part, part_shape), part_bias))
            else:
                weight = reader.joined(part, part_shape, dtype=torch.bfloat16)
                products.append(RoundedProduct(weight, part_bias, inner=self.rounded))
        return products[0] if len(products) == 1 else JoinedProduct(products)

    def weights_of(
        self, reader: WeightReader, names: Sequence[str], shape: tuple[int, int]
    ) -> tuple[Tensor, ...]:
        """Return joined weights [out, in]: codes, scales and zeros, or widened unless all have four bits."""
        assert isinstance(reader, GgufReader)
        if {self._form(reader.kind(name), reader.dtype) for name in names} == {"int4"}:
            return _int4(reader, names, shape).tensors
        return (reader.joined(names, shape),)

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        assert isinstance(reader, GgufReader)
        name = EMBEDDINGS if is_tied else HEAD
        reader.check([name], shape)
        if isinstance(form := self._form(reader.kind(name), reader.dtype), str) and form != "int4":
            head = self._coded_product(reader, form, [name], shape, None)
        else:
            is_narrow = adds_wide(reader.dtype, reader.device)
            weight = reader.joined([name], shape, dtype=reader.dtype if is_narrow else torch.float32)
            head = Float32Head(self(weight) if is_narrow else self.head(weight))
        if stays_in_file(shape[0] * shape[1] * reader.dtype.itemsize, reader.device):
            return reader.embeddings(EMBEDDINGS, shape), head
        return HeldEmbeddings(reader.read(EMBEDDINGS, shape)), head

    def _coded_product(
        self,
        reader: GgufReader,
        form: str,
        names: Sequence[str],
        shape: tuple[int, int],
        bias: Tensor | None,
    ) -> Product:
        coded: Any = self.coded
        is_four = form == "int4"
        weights = _int4(reader, names, shape) if is_four else CodedRows(shape, _parts(reader, names, shape))
        product: Product = coded(weights, bias)
        return product

    @property
    def is_invariant(self) -> bool:
        return all(kernel.is_invariant for kernel in self.used)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({kernel.kernel for kernel in self.used}))

    def _form(self, kind: Kind, states: torch.dtype) -> _Form:
        if kind.name in self.kept:
            return kind.name if self.coded is CompiledProduct else "int4"
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
    kept, wide = kept_bits(device.type), wide_dtype() if device.type == "cpu" else dtype
    coded: type[Product] = FixedInt4Product if device.type == "cuda" else int4_kernel()
    plain, other = (choose_kernels(Counter(), number, device, options) for number in (dtype, wide))
    dense, rounded = plain.default, other.default
    make = KeptMaker(
        dense,
        stacks_experts=plain.stacks_experts,
        head=plain.head,
        kept=frozenset(kept),
        coded=coded,
        rounded=rounded,
        wide=wide,
    )
    kernels: dict[_Form, type[Product]] = dict.fromkeys((*kept, "int4"), coded)
    kernels |= {wide: rounded, dtype: dense}
    matrices = (tensor for tensor in held_tensors(read_gguf_head(model)) if len(tensor.shape) > 1)
    used = {kernels[make._form(tensor.kind, dtype)] for tensor in matrices}
    return replace(make, used=tuple(used))


def _int4(reader: GgufReader, names: Sequence[str], shape: tuple[int, int]) -> Int4Weights:
    """Return joined matrices of four bits, their scales rounded to bfloat16."""
    parts = list[tuple[Tensor, ...]]()
    for part in _parts(reader, names, shape):
        codes = part.with_offsets()
        assert codes.offsets is not None
        scales = codes.scales.float()
        pairs = codes.codes.view(len(scales), -1, 2)
        zeros = codes.offsets.float() + _MIDDLE * scales
        parts.append((pairs[..., 0] | pairs[..., 1] << 4, scales.bfloat16(), zeros.bfloat16()))
    return Int4Weights(*(torch.cat(tensors).to(reader.device) for tensors in zip(*parts, strict=True)))


def _parts(reader: GgufReader, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Codes]:
    """Yield rows of joined matrices with the bits of the file.

    Raises ModelError for scales that are no numbers.
    """
    for kind, rows in reader.stored_rows(names, shape):
        part = coded(rows, kind)
        numbers = [part.scales] if part.offsets is None else [part.scales, part.offsets]
        if not all(each.isfinite().all() for each in numbers):
            raise ModelError(f"The weights {', '.join(names)} have values that are no finite numbers.")
        yield part


_MIDDLE = 8  # the code of Int4Weights' zeros


def coded(rows: Rows, kind: Kind) -> Codes:
    """Return stored rows [N, bytes of a row] as codes and scales, exactly. Layouts: ggml-common.h of ggml."""
    blocks = torch.from_numpy(rows).view(len(rows), -1, kind.nbytes)
    return _READERS[kind.name](blocks)


def _q4_0(blocks: Tensor) -> Codes:
    """A scale d, then 16 bytes: value = (code - 8) * d."""
    return _joined(4, 8, _nibbles(blocks[..., 2:]), _halves(blocks[..., :2]))


def _q4_1(blocks: Tensor) -> Codes:
    """A scale d, a minimum m, then 16 bytes: value = code * d + m."""
    return _joined(4, 0, _nibbles(blocks[..., 4:]), *torch.split(_halves(blocks[..., :4]), 1, -1))


def _q5_0(blocks: Tensor) -> Codes:
    """A scale d, the upper bits in 4 bytes, then 16 bytes: value = (code - 16) * d."""
    return _joined(5, 16, _nibbles(blocks[..., 6:]) | _bits(blocks[..., 2:6]) << 4, _halves(blocks[..., :2]))


def _q5_1(blocks: Tensor) -> Codes:
    """A scale d, a minimum m, the upper bits in 4 bytes, then 16 bytes: value = code * d + m."""
    codes = _nibbles(blocks[..., 8:]) | _bits(blocks[..., 4:8]) << 4
    return _joined(5, 0, codes, *torch.split(_halves(blocks[..., :4]), 1, -1))


def _q8_0(blocks: Tensor) -> Codes:
    """A scale d, then 32 signed bytes c: value = c * d; codes are c + 128."""
    return _joined(8, 128, blocks[..., 2:] ^ 128, _halves(blocks[..., :2]))


def _q4_k(blocks: Tensor) -> Codes:
    """Scales d and e, 12 bytes of scales s and minima m, 8 groups: value = code * d * s - e * m."""
    return _joined(
        4, 0, _nibbles(blocks[..., 16:].reshape(*blocks.shape[:2], 4, GROUP)), *_two_levels(blocks)
    )


def _q5_k(blocks: Tensor) -> Codes:
    """As Q4_K, after 32 bytes of upper bits: bit g of byte i is that of input i of group g."""
    lower = _nibbles(blocks[..., 48:].reshape(*blocks.shape[:2], 4, GROUP))
    codes = lower.view(*blocks.shape[:2], 8, GROUP)
    shifts = torch.arange(8, dtype=torch.uint8)[:, None]
    return _joined(5, 0, codes | (blocks[..., None, 16:48] >> shifts & 1) << 4, *_two_levels(blocks))


def _q6_k(blocks: Tensor) -> Codes:
    """Lower bits in 128 bytes, upper ones in 64, 16 signed scales s, a scale d: value = (code - 32) * d * s.

    Of each half of 128 inputs, byte i of 32 has the upper bits of inputs i, i + 32, i + 64 and i + 96.
    """
    low = _nibbles(blocks[..., :128].reshape(*blocks.shape[:2], 2, 64))
    upper = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, GROUP)
    high = upper >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None] & 3
    codes = low | high.flatten(-2) << 4
    scales = blocks[..., 192:208].contiguous().view(torch.int8) * _halves(blocks[..., 208:]).float()
    return _joined(6, 32, codes, scales)


def _joined(bits: int, middle: int, codes: Tensor, scales: Tensor, offsets: Tensor | None = None) -> Codes:
    """Return the codes, scales and offsets of blocks, [N, blocks, ...] each, as those of rows."""
    return Codes(
        bits, middle, codes.flatten(1), scales.flatten(1), None if offsets is None else offsets.flatten(1)
    )


def _two_levels(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scales and the offsets of the 8 groups of a block, float32.

    The first four groups have the lower six bits of a byte each; the others four bits of a byte, and the
    upper two of an earlier one.
    """
    outer = _halves(blocks[..., :4]).float()
    first, second, third = torch.split(blocks[..., 4:16], 4, -1)
    scales = torch.cat([first & 63, third & 15 | (first >> 6) << 4], -1)
    lows = torch.cat([second & 63, third >> 4 | (second >> 6) << 4], -1)
    return outer[..., :1] * scales, outer[..., 1:] * -lows.float()


def _nibbles(packed: Tensor) -> Tensor:
    """Return the lower four bits of all bytes [..., B], then the upper ones: [..., 2 * B]."""
    return torch.cat([packed & 15, packed >> 4], -1)


def _bits(packed: Tensor) -> Tensor:
    """Return the bits of bytes [..., B], the lowest one first: [..., 8 * B]."""
    return (packed[..., None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2)


def _halves(raw: Tensor) -> Tensor:
    """Return bytes [..., 2 * N] as float16 numbers [..., N]."""
    return raw.contiguous().view(torch.float16)


_READERS: Mapping[str, Callable[[Tensor], Codes]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_0": _q8_0,
}
