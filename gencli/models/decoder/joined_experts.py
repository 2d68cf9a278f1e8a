"""Read the experts of a layer that lie in one tensor each for gates and up, and for down.

The files have `...experts.gate_up_proj` [E, H, 2 * I], gates and up in turn, and `...experts.down_proj`
[E, I, H], with biases `..._bias` [E, out]. Or they have codes of four bits (see mxfp4). The tensors of one
expert go by the names that other families have in their files: `...experts.3.gate_proj.weight` [I, H].
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.mxfp4 import widened_mxfp4
from gencli.models.decoder.weights import SLICE, SafetensorsReader
from gencli.models.files.quantization import BLOCKS, SCALES
from gencli.models.files.table import StoredTensor
from gencli.models.files.tensors import dtype_of

__all__ = ["JoinedExpertsReader"]

_NAME = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)")
# The joined tensor, and where the outputs of one lie among those of the joined one: first and step.
_PLACES = {"gate": ("gate_up_proj", 0, 2), "up": ("gate_up_proj", 1, 2), "down": ("down_proj", 0, 1)}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the tensor of an expert lies: in the joined `tensors`, a weight or codes with their scales."""

    tensors: tuple[StoredTensor, ...]
    expert: int
    first: int
    step: int
    is_transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the joined tensor of this expert, [out, in] or [out]."""
        stored = self.tensors[0].shape[1:]
        if len(self.tensors) == 2:
            return stored[0], stored[1] * stored[2] * 2
        return tuple(reversed(stored)) if self.is_transposed else stored


class JoinedExpertsReader(SafetensorsReader):
    """Reads tensors of experts out of joined ones.

    The last joined tensor of an expert is kept, as its gates are read before its up.
    """

    _kept: tuple[tuple[str, int], tuple[Tensor, ...]] | None = None

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the names of the stored tensors that have the numbers of a tensor."""
        place = self._place(name)
        return (name,) if place is None else tuple(stored.name for stored in place.tensors)

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        """Yield slices [rows, in] of joined matrices, as WeightReader.slices."""
        if not any(map(self._place, names)):
            yield from super().slices(names, shape)
            return
        rows = max(1, SLICE // max(1, shape[1]))
        for part in self.check(names, shape):
            whole = torch.empty(part.shape)
            self._fill(part, whole)
            yield from torch.split(whole, rows)
            self._read(part.name)

    def joined(self, names: Sequence[str], shape: Sequence[int], **options: Any) -> Tensor:
        """Return joined tensors, as PartsReader.joined."""
        made = super().joined(names, shape, **options)
        for name in names:
            self._read(name)
        return made

    def codes(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Tensor, ...] | None:
        """Return the codes [out, in / 2] and scales [out, in / 32] of matrices in MXFP4.

        None between states of 32 bits, with which no kernel multiplies codes.
        """
        places = [self._place(name) for name in names]
        if self.dtype.itemsize != 2 or any(place is None or len(place.tensors) == 1 for place in places):
            return None
        (outputs, inputs), first = shape, 0
        self.check(names, shape)
        sizes = (inputs // 2, inputs // 32)
        made = tuple(torch.empty(outputs, size, dtype=torch.uint8, device=self.device) for size in sizes)
        for name, place in zip(names, places, strict=True):
            assert place is not None
            own = [part[place.first :: place.step].flatten(1) for part in self._parts(place)]
            for target, part in zip(made, own, strict=True):
                target[first : first + len(part)] = part
            first += len(own[0])
            self._read(name)
        return made

    def _read(self, name: str) -> None:
        self.unread.difference_update(self.sources(name))

    def _fill(self, part: StoredTensor, target: Tensor) -> None:
        place = self._place(part.name)
        if place is None:
            super()._fill(part, target)
        else:
            target.copy_(self._widened(place))

    def _stored(self, name: str) -> StoredTensor:
        place = self._place(name)
        if place is None:
            return super()._stored(name)
        outputs, *inputs = place.shape
        return replace(place.tensors[0], name=name, shape=(outputs // place.step, *inputs))

    def _place(self, name: str) -> _Place | None:
        """Return where a tensor of an expert lies in joined ones; None for a tensor by its own name."""
        found = None if name in self._files.tensors else _NAME.fullmatch(name)
        if found is None:
            return None
        prefix, number, own, kind = found.groups()
        joined, first, step = _PLACES[own]
        whole, tensors = f"{prefix}.{joined}", self._files.tensors
        if kind == "bias":
            names: tuple[str, ...] = (f"{whole}_bias",)
        else:
            names = (whole + BLOCKS, whole + SCALES) if whole + BLOCKS in tensors else (whole,)
        held = tuple(super(JoinedExpertsReader, self)._stored(one) for one in names)
        sides = {"bias": 2, "weight": 3 if len(held) == 1 else 4}[kind]
        if len(held[0].shape) != sides or int(number) >= held[0].shape[0] or held[0].shape[1] % step:
            raise ModelError(f"The weights {held[0].name} have the shape {list(held[0].shape)}.")
        return _Place(held, int(number), first, step, is_transposed=kind == "weight" and len(held) == 1)

    def _widened(self, place: _Place) -> Tensor:
        """Return the numbers of a tensor of an expert, [out, in] or [out]."""
        whole, *scales = self._parts(place)
        own = (whole.t() if place.is_transposed else whole)[place.first :: place.step]
        return widened_mxfp4(own, scales[0][place.first :: place.step]) if scales else own

    def _parts(self, place: _Place) -> tuple[Tensor, ...]:
        """Return what is stored of the joined tensor of an expert."""
        key = place.tensors[0].name, place.expert
        if self._kept is None or self._kept[0] != key:
            self._kept = None  # its memory is free for the next one
            self._kept = key, tuple(self._part(stored, place.expert) for stored in place.tensors)
        return self._kept[1]

    def _part(self, stored: StoredTensor, expert: int) -> Tensor:
        part = torch.empty(stored.shape[1:], dtype=dtype_of(stored))
        self._files.read_into(stored.name, part, self._count, expert * part.numel())
        return part
