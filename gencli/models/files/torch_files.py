"""Tensors of a file of torch.save (*.bin, *.pt), which published draft heads have: read without running code.

Such a file is a zip archive of a pickle, which describes the tensors, and of their bytes. PyTorch's reader
with `weights_only` runs none of its code, but lets a pickle of a few bytes ask for any amount of memory. So
the archive and the names in its pickle are checked first: bytes are stored as they are, and tensors are all
there is. The file is mapped into memory: bytes are read when they are copied to where they are used.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.helpers import shortened
from gencli.models.decoder.decoder_layers import Embeddings, HeldEmbeddings
from gencli.models.decoder.weight_readers import NUMBER_FORMATS, SafetensorsReader, TensorFiles
from gencli.models.files.model_files import StoredTensor

SUFFIXES = (".bin", ".pt", ".pth")
_MAX_PICKLE = 2**22  # bytes; a tensor takes some 200
_NUMBERS = "Double Float Half BFloat16 Long Int Short Char Byte Bool".split()
_NAMES = frozenset(
    (
        "collections OrderedDict",
        "torch._utils _rebuild_parameter",
        "torch._utils _rebuild_tensor_v2",
        *(f"torch {number}Storage" for number in _NUMBERS),
    )
)
_HINT = "Convert it to safetensors where you trust it, or take a revision that has model.safetensors"


def read_torch_file(path: Path, limit: int) -> dict[str, Tensor]:
    """Return the tensors of a file of torch.save by name, mapped into memory.

    Raises ModelError for a file of more than `limit` bytes, a damaged one, and one that holds anything else.
    """
    try:
        with open_regular(path) as stream:
            size = stream.seek(0, 2)
            if size > limit:
                raise ModelError(
                    f"{path} has {size:,} bytes; the shapes of its config.json need at most {limit:,}.",
                    hint="Is config.json that of another model?",
                )
            _check_archive(path, stream, size)
        loaded = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except ModelError:
        raise
    except Exception as error:  # a damaged file raises exceptions of any type in zipfile and PyTorch
        reason = shortened(" ".join(str(error).split()), 120) or type(error).__name__
        raise ModelError(f"{path} is damaged: {reason}", hint="Download it again.") from None
    if not isinstance(loaded, dict) or not loaded:
        raise _unwanted(path, f"a {type(loaded).__name__}")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _unwanted(path, f"{name!r} of the type {type(tensor).__name__}")
        if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise ModelError(f"{path} is damaged: {name} has more numbers than bytes.")
    return loaded


def _check_archive(path: Path, stream: BinaryIO, size: int) -> None:
    """Raise ModelError for an archive or a pickle that holds anything but tensors by name."""
    if not zipfile.is_zipfile(stream):
        raise ModelError(
            f"{path} is no file of torch.save, or one of a PyTorch older than 1.6; its pickle is not read.",
            hint=_HINT,
        )
    with zipfile.ZipFile(stream) as archive:
        parts = archive.infolist()
        pickles = [part for part in parts if part.filename.rpartition("/")[2] == "data.pkl"]
        names = {part.filename for part in parts}
        is_plain = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        if len(pickles) != 1 or len(names) < len(parts) or not is_plain:
            raise _unwanted(path, "compressed parts, or not one pickle")
        if sum(part.file_size for part in parts) > size or pickles[0].file_size > _MAX_PICKLE:
            raise _unwanted(path, "parts that are larger than it is, or a pickle that is too large")
        content = archive.read(pickles[0])
    for code, value, _ in pickletools.genops(content):
        if code.name in ("INST", "STACK_GLOBAL") or (code.name == "GLOBAL" and value not in _NAMES):
            raise _unwanted(path, f"the name {shortened(str(value or code.name), 60)!r} in its pickle")


def _unwanted(path: Path, content: str) -> ModelError:
    return ModelError(
        f"{path} has {content}, not only tensors by name; loading it could run code or take any memory.",
        hint=_HINT,
    )


class MappedTensors(TensorFiles):
    """Tensors of a file that is mapped into memory, by name; `tensors` as stored_tensors gives them."""

    def __init__(self, tensors: Mapping[str, StoredTensor], mapped: Mapping[str, Tensor]) -> None:
        self.tensors, self._mapped = tensors, mapped

    def read_into(self, name: str, target: Tensor, on_read: Callable[[int], None], first: int = 0) -> None:
        part = self._mapped[name].detach().reshape(-1)[first : first + target.numel()]
        target.view(-1).copy_(part)
        on_read(part.nbytes)


class MappedReader(SafetensorsReader):
    """Reads tensors of a mapped file. Embeddings are held in memory: no offset of a row is known."""

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        return HeldEmbeddings(self.read(name, shape))


def stored_tensors(path: Path, mapped: Mapping[str, Tensor]) -> dict[str, StoredTensor]:
    """Return the tensors as those of a table. Raises ModelError for a number format that is not read."""
    formats = {dtype: number_format for number_format, dtype in NUMBER_FORMATS.items()}
    if strange := [name for name, tensor in mapped.items() if tensor.dtype not in formats]:
        raise ModelError(f"{path}: {strange[0]} has the number format {mapped[strange[0]].dtype}.")
    return {
        name: StoredTensor(name, path, formats[tensor.dtype], tuple(tensor.shape), 0, tensor.nbytes)
        for name, tensor in mapped.items()
    }
