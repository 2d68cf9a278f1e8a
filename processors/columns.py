"""`Columns`: the numeric fields of a stage's Params as tensors indexed by slot."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args, get_origin

import torch
from torch import Tensor

from processors.params import Params, hints_of
from processors.rows import Rows

__all__ = ["Columns", "in_slot"]


class Columns:
    """The numeric fields of a Params class as tensors [S] indexed by slot.

    float is stored as float64, int as int64, bool as bool, and a Literal as its index in the declaration.
    None is stored as `NONE`, a very large number, so that a window of None covers everything.
    """

    NONE: ClassVar[int] = torch.iinfo(torch.int64).max // 2

    def __init__(self, params: type[Params], device: torch.device) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._gathered: dict[str, tuple[tuple[int, ...], Tensor, Tensor]] = {}  # slots, as stored, as float32
        self.is_kept = True  # off for plug-in stages, which may change a gathered tensor in place
        self._choices: dict[str, tuple[Any, ...]] = {}
        self._params: dict[int, Params] = {}
        self._known: dict[str, tuple[tuple[int, ...], frozenset[Any]]] = {}  # slots, and their values
        hints = hints_of(params)
        for field in params.own_fields():
            hint = hints[field.name]
            if get_origin(hint) is Literal:
                self._choices[field.name] = get_args(hint)
            dtype = _column_dtype(hint)
            if dtype is not None:
                self._tensors[field.name] = torch.zeros(8, dtype=dtype, device=device)

    def write(self, slot: int, params: Params) -> None:
        """Store the values of a slot."""
        self._params[slot] = params
        self._forget()
        for name, tensor in self._tensors.items():
            value = getattr(params, name)
            if name in self._choices:
                value = self._choices[name].index(value)
            tensor = self._tensors[name] = in_slot(tensor, slot)
            tensor[slot].fill_(self.NONE if value is None else value)  # setting an item would wait for a GPU

    def copy(self, source: int, target: int) -> None:
        """Copy the values of one slot to another."""
        self._params[target] = self._params[source]
        self._forget()
        for name, tensor in self._tensors.items():
            tensor = self._tensors[name] = in_slot(tensor, target)
            tensor[target] = tensor[source]

    def gather(self, name: str, rows: Rows) -> Tensor:
        """Return the field's value for each row [R]; float fields as float32, like logits.

        The tensor is shared by steps and must not be changed in place.
        """
        return self._of(name, rows)[2]

    def exact(self, name: str, rows: Rows) -> Tensor:
        """Return the field's value for each row [R]; float fields as float64. Not to be changed in place."""
        return self._of(name, rows)[1]

    def at(self, name: str, slots: Tensor) -> Tensor:
        """Return the field's value for each of the slots [N], as `exact` does for rows."""
        return self._tensors[name][slots]

    def _of(self, name: str, rows: Rows) -> tuple[tuple[int, ...], Tensor, Tensor]:
        """Return the entry of the rows' slots; gathered only if the slots differ from the last call's."""
        found = self._gathered.get(name)
        if found is None or found[0] != rows.host_slots or not self.is_kept:
            values = self._tensors[name][rows.slots]
            found = rows.host_slots, values, values.float() if values.is_floating_point() else values
            self._gathered[name] = found
        return found

    def params(self, slot: int) -> Params:
        """Return the parameters of a slot."""
        return self._params[slot]

    def known(self, name: str, rows: Rows) -> frozenset[Any]:
        """Return the distinct values of the field among the rows, without device synchronisation."""
        found = self._known.get(name)
        if found is None or found[0] != rows.host_slots:
            values = frozenset([getattr(self._params[slot], name) for slot in rows.host_slots])
            found = self._known[name] = rows.host_slots, values
        return found[1]

    def _forget(self) -> None:
        self._gathered.clear()
        self._known.clear()


def in_slot(tensor: Tensor, slot: int, fill: float = 0) -> Tensor:
    """Return the tensor, its first dimension grown by doubling with `fill` if it does not reach `slot`."""
    if slot < tensor.shape[0]:
        return tensor
    extra = max(slot + 1, 2 * tensor.shape[0]) - tensor.shape[0]
    return torch.cat([tensor, tensor.new_full((extra, *tensor.shape[1:]), fill)])


def _column_dtype(hint: Any) -> torch.dtype | None:
    simple = {float: torch.float64, int: torch.int64, bool: torch.bool}
    if get_origin(hint) is Literal:
        return torch.int64
    if hint in simple:
        return simple[hint]
    return {int | None: torch.int64, float | None: torch.float64}.get(hint)
