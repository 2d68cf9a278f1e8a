"""What the files of a model hold, without PyTorch: JSON and text of limited size and depth, where the
tensors of safetensors files lie, the format of quantized weights as config.json names it, and the
progress of reading.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gencli.errors import ModelError
from gencli.files import open_regular, read_file

_MAX_BYTES = 256 << 20  # of a file; the largest tokenizer.json have about 40 MB


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ModelError if there is none."""
    try:
        value = json.loads(read_text(path))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}.") from None
    except RecursionError:
        raise ModelError(f"{path} is not valid: its values are nested too deep.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} should hold a JSON object.")
    return value


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ModelError if it is missing, too large, irregular, or no UTF-8."""
    try:
        return read_file(path, _MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}, so it is no model folder.") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None


def read_object_if_any(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} on any fault, which loading the model will report."""
    try:
        return read_object(path)
    except ModelError:
        return {}


_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format
# Bytes of a number, by format. The size of tensors of other formats is not checked.
_WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"), 1),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `start` is the offset of its first byte in `file`, `nbytes` its length there.

    `format` is the number format as the file names it: F32, BF16, I8...
    """

    name: str
    file: Path
    format: str
    shape: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def read_table(files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of all files by name, those of a file in the order of their bytes.

    Raises ModelError for a damaged file: a header that is none, or whose offsets leave the file, overlap, or
    do not match format and shape.
    """
    table: dict[str, StoredTensor] = {}
    for file in files:
        head, start, size = _read_head(file)
        last = start
        ranges = {name: _range(file, name, entry) for name, entry in head.items()}
        for name, (begin, end) in sorted(ranges.items(), key=lambda item: item[1]):
            shape, number_format = tuple(head[name]["shape"]), head[name]["dtype"]
            stored = StoredTensor(name, file, number_format, shape, start + begin, end - begin)
            needed = stored.count * _WIDTHS[stored.format] if stored.format in _WIDTHS else stored.nbytes
            if stored.nbytes != needed:
                raise _damaged(file, f"{name} has {stored.nbytes} bytes, its shape needs {needed}")
            if stored.start < last or start + end > size:
                raise _damaged(file, f"{name} overlaps another tensor or the end of the file")
            table[name], last = stored, start + end
    return table


def _read_head(file: Path) -> tuple[Mapping[str, Any], int, int]:
    """Return the header of a file, the offset of the first byte behind it, and the size of the file.

    The header is its length in eight bytes, then JSON. Raises ModelError for a damaged file.
    """
    try:
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= _MAX_HEADER_BYTES:
                raise ValueError("its header has no length")
            head = json.loads(stream.read(length))
            head.pop("__metadata__", None)
            if not all(map(_is_tensor, head.values())):
                raise ValueError("its header is not a table of tensors")
            return head, 8 + length, stream.seek(0, os.SEEK_END)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, str(error)) from None


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape = entry.get("shape")
    return isinstance(shape, list) and all(isinstance(side, int) and side >= 0 for side in shape)


def _range(file: Path, name: str, entry: Mapping[str, Any]) -> tuple[int, int]:
    match entry.get("data_offsets"):
        case [int(begin), int(end)] if 0 <= begin <= end:
            return begin, end
    raise _damaged(file, f"{name} has no offsets")


def _damaged(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file} is damaged: {reason}.", hint="Download it again.")


Quantize = Literal["none", "int8", "int4"]
Format = Literal[Quantize, "kept"]  # of weights in memory; kept: a GGUF file's own bits
METHOD, VERSION = "gencli", 1
BLOCKS, SCALES = "_blocks", "_scales"  # behind the name of a weight in MXFP4: its codes and their scales
MIN_STORED = 2**24  # bytes of embeddings; smaller ones are always held in memory
_MXFP4_KEYS = frozenset(("quant_method", "modules_to_not_convert", "dequantize"))
_BITS: Mapping[str, int] = {"int8": 8, "int4": 4}


def bits_of(quantize: Quantize) -> int | None:
    """Return the bits of weights quantized at loading; None for `none`."""
    return _BITS.get(quantize)


def is_own(config: Mapping[str, Any]) -> bool:
    """Return whether config.json says that gencli has quantized the weights."""
    quantization = config.get("quantization_config")
    return isinstance(quantization, Mapping) and quantization.get("quant_method") == METHOD


def mxfp4_fault(config: Mapping[str, Any]) -> str:
    """Return why the weights are no experts in MXFP4 beside others of 16 bits; "" if they are."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping) or quantization.get("quant_method") != "mxfp4":
        return "the weights are quantized by another program"
    strange = sorted(quantization.keys() - _MXFP4_KEYS)
    return f"the MXFP4 weights have {strange[0]!r}, which the decoder does not know" if strange else ""


def stored_bits(config: Mapping[str, Any]) -> int | None:
    """Return the bits of stored weights, 8 or 4; None if gencli has not quantized them.

    Raises ModelError for a format of another version.
    """
    if not is_own(config):
        return None
    quantization = config["quantization_config"]
    bits, version = quantization.get("bits"), quantization.get("version")
    if type(bits) is not int or bits not in _BITS.values() or version != VERSION:
        raise ModelError(
            f"The weights are quantized to {str(bits)[:20]} bits in version {str(version)[:20]} of the "
            f"format; this gencli reads 8 and 4 bits in version {VERSION}.",
            hint="Quantize the model again with gencli quantize.",
        )
    return bits


OnBytes = Callable[[int, int], None]  # bytes loaded, and total bytes
_BAR = "Loading weights"  # title of the progress bar of transformers' loop over weights


class Sum:
    """Adds up the bytes that several readers of the same files report, from any thread."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes, self._lock, self._done = on_bytes, threading.Lock(), 0

    def part(self) -> OnBytes:
        """Return what one of the readers calls."""
        reported = 0

        def report(done: int, total: int) -> None:
            nonlocal reported
            with self._lock:
                self._done, reported = self._done + done - reported, done
                self._on_bytes(self._done, total)

        return report


@contextmanager
def watched(table: Mapping[str, StoredTensor], on_bytes: OnBytes) -> Iterator[None]:
    """Call `on_bytes` before the first weight and after each.

    Uses the progress bar hook of transformers. If the bar has another title, nothing is reported.
    """
    from transformers.utils import logging

    stored = {name: tensor.nbytes for name, tensor in table.items()}

    def hook(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.get("desc") == _BAR and args:
            return _counted(args[0], stored, on_bytes)
        return make(*args, **options)

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _counted(weights: Any, stored: dict[str, int], on_bytes: OnBytes) -> Iterator[Any]:
    """Yield the (name, weight) pairs, and count their bytes.

    Weights merged from several stored tensors share the remaining bytes evenly.
    """
    names = [name for name, _ in weights]
    merged = [name for name in names if name not in stored]
    remaining = sum(stored.values()) - sum(stored.get(name, 0) for name in names)
    share = remaining // len(merged) if merged else 0
    total, done = sum(stored.get(name, share) for name in names), 0
    on_bytes(done, total)
    for name, weight in weights:
        yield name, weight
        done += stored.get(name, share)
        on_bytes(done, total)
