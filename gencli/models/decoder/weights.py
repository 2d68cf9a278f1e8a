"""Read the tensors of a checkpoint one by one, straight from its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.files.card import stored_bytes
from gencli.models.files.fit import read_heads
from gencli.models.gguf.head import is_gguf
from gencli.models.gguf.reader import open_gguf
from gencli.models.watch import OnBytes

__all__ = ["SafetensorsReader", "WeightReader", "open_weights"]

# Number formats of quantized weights, as safetensors names them.
_STORED = {"I8": torch.int8, "U8": torch.uint8, "F32": torch.float32, "BF16": torch.bfloat16}


class WeightReader(Protocol):
    """Tensors by name, as numbers of one dtype on one device. `unread` are the names that were not read."""

    unread: set[str]

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor. Raises ModelError if it is absent or has another shape."""
        ...

    def joined(self, names: Sequence[str], shape: Sequence[int]) -> Tensor:
        """Return tensors joined along their first dimension, [sum of first dimensions, ...]."""
        ...


class SafetensorsReader(WeightReader):
    """Tensors by name, each converted to `dtype` on `device`, and its stored bytes (`sizes`) counted.

    Reading maps the file into memory. A converted or joined tensor is new memory, and one that needs neither
    is the mapped file itself.
    """

    def __init__(
        self,
        files: Mapping[str, Any],
        sizes: Mapping[str, int],
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self._files, self._sizes, self._dtype, self._device = files, sizes, dtype, device
        self._on_bytes, self._done, self._total = on_bytes, 0, sum(sizes.values())
        self.unread = set(files)
        if on_bytes:
            on_bytes(0, self._total)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor. Raises ModelError if it is absent or has another shape."""
        return self.joined([name], shape)

    def joined(self, names: Sequence[str], shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """Return tensors joined along their first dimension, [sum of first dimensions, ...], as `dtype`."""
        dtype, shapes = dtype or self._dtype, self.check(names, shape)
        whole = tuple(shape)
        if len(names) == 1:
            made: Tensor = self._files[names[0]].get_tensor(names[0]).to(self._device, dtype)
            self._count(names[0])
            return made
        joined, start = torch.empty(whole, dtype=dtype, device=self._device), 0
        for name, one in zip(names, shapes, strict=True):
            joined[start : start + one[0]] = self._files[name].get_tensor(name)
            start += one[0]
            self._count(name)
        return joined

    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the shapes of tensors.

        Raises ModelError if one is absent, or if joined they have another shape than `shape`.
        """
        shapes = [self.shape(name) for name in names]
        is_joinable = all(one and one[1:] == shapes[0][1:] for one in shapes)
        whole = [sum(one[0] for one in shapes), *shapes[0][1:]] if is_joinable else [*map(list, shapes)]
        if whole != list(shape):
            raise ModelError(
                f"The weights {', '.join(names)} have the shape {whole}; config.json asks for {list(shape)}."
            )
        return shapes

    def stored(self, names: Sequence[str], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return joined tensors that are stored in `dtype`. Raises ModelError for another one."""
        for name in names:
            self.shape(name)
            found = self._files[name].get_slice(name).get_dtype()
            if _STORED.get(found) != dtype:
                wanted = str(dtype).removeprefix("torch.")
                raise ModelError(f"The weights {name} are stored as {found}, but have to be {wanted}.")
        return self.joined(names, shape, dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelError if it is absent."""
        if name not in self._files:
            raise ModelError(
                f"The checkpoint lacks the weights {name}.",
                hint="Is it the checkpoint of a base model, an adapter, or an interrupted download?",
            )
        return tuple(self._files[name].get_slice(name).get_shape())

    def _count(self, name: str) -> None:
        self.unread.discard(name)
        if self._on_bytes:
            self._done += self._sizes[name]
            self._on_bytes(self._done, self._total)


@contextmanager
def open_weights(
    files: Sequence[Path], dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[WeightReader]:
    """Open the files of a checkpoint for reading. Raises ModelError for a damaged file."""
    if is_gguf(files[0]):
        with open_gguf(files[0], dtype, device, on_bytes) as opened:
            yield opened
        return
    from safetensors import SafetensorError, safe_open

    sizes = {name: stored_bytes(entry) for name, entry in read_heads(files).items()}
    with ExitStack() as stack:
        named: dict[str, Any] = {}
        for file in files:
            try:
                opened = stack.enter_context(safe_open(file, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{file} is damaged: {error}", hint="Download it again.") from None
            named.update(dict.fromkeys(opened.keys(), opened))
        yield SafetensorsReader(named, sizes, dtype, device, on_bytes)
