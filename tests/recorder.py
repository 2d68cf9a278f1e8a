"""A recorder of CUDA graphs for the CPU: operations are noted once and run again on the same tensors.

It has the rules of a capture: nothing is computed by recording, every tensor keeps its address, and a
function that reads a value on the host, or brings values from there, cannot be recorded.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from processors.graphs import Outputs

__all__ = ["CpuGraph", "CpuRecorder", "NotRecordable"]

# Operations whose result, or its shape, the host has to read from the device.
_READS = {
    "_local_scalar_dense", "item", "nonzero", "nonzero_numpy", "equal", "masked_select", "_unique2",
    "unique_dim", "bincount", "is_nonzero", "repeat_interleave",
}  # fmt: skip
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}


class NotRecordable(RuntimeError):
    """The function does what no CUDA graph can hold."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation with its tensors: `made` are those outputs that have memory of their own."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: tuple[tuple[int, Tensor], ...]

    def run(self) -> None:
        """Compute again, into the same outputs."""
        found = _leaves(self.function(*self.args, **self.kwargs))
        for place, tensor in self.made:
            tensor.copy_(found[place])


@dataclass
class CpuGraph:
    """The recorded operations, in order."""

    calls: list[_Call] = field(default_factory=list)
    outputs: Outputs = ()
    nbytes: int = 0

    def replay(self) -> Outputs:
        """Run all operations on what their tensors hold now."""
        for call in self.calls:
            call.run()
        return self.outputs


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    """The address; 0 for what has none, such as packed weights and empty tensors."""
    return 0 if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()


class _HostReads(TorchFunctionMode):
    """Refuses methods that read values on the host and that no dispatch sees."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.tolist, torch.Tensor.numpy):
            raise NotRecordable(f"{function.__name__} reads values on the host")
        return function(*args, **(kwargs or {}))


class _Notes(TorchDispatchMode):
    """Notes each operation, and keeps the contents of what it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = CpuGraph()
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # by address: bytes, and what they held
        self._given: list[Tensor] = []  # that no operation made
        self._known, self._made = {0}, {0}  # addresses

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.partition("::")[2]
        if name in _READS and function._schema.overload_name != "self_int":  # a count is known to the host
            raise NotRecordable(f"{name} reads values on the host")
        if name in _INDEXED and any(one is not None and one.dtype == torch.bool for one in args[1]):
            raise NotRecordable(f"{name} by a mask reads values on the host")
        given = _leaves((args, kwargs))
        self._given += [one for one in given if one.dim() and _memory(one) not in self._known]
        self._known |= {_memory(one) for one in given}
        if function._schema.is_mutable:
            self._keep(given)
        found = function(*args, **kwargs)
        known = {_memory(tensor) for tensor in given}
        made = tuple((place, one) for place, one in enumerate(_leaves(found)) if _memory(one) not in known)
        addresses = {_memory(tensor) for _, tensor in made}
        self._known |= addresses
        self._made |= addresses
        if made or function._schema.is_mutable:
            self.graph.calls.append(_Call(function, args, kwargs, made))
        return found

    def check(self) -> None:
        """Refuse tensors that nothing holds any more: they were made of values of the host meanwhile."""
        held = [leaf for call in self.graph.calls for leaf in _leaves((call.args, call.kwargs))]
        counts = Counter(map(id, held))
        del held
        while self._given:
            tensor = self._given.pop()
            if sys.getrefcount(tensor) <= 2 + counts[id(tensor)]:  # the variable and the argument
                raise NotRecordable(f"a tensor {[*tensor.shape]} is made of values of the host")

    def _keep(self, given: list[Tensor]) -> None:
        for tensor in given:
            if (place := _memory(tensor)) not in self.before and place not in self._made:
                flat = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
                self.before[place] = (flat, flat.clone())


class CpuRecorder:
    """Records on the CPU; `recorded` has all graphs so far."""

    def __init__(self) -> None:
        self.recorded: list[CpuGraph] = []

    def record(self, run: Callable[[], Outputs]) -> CpuGraph:
        """Return the graph of `run`; what it changed is as before."""
        notes = _Notes()
        try:
            with _HostReads(), notes:
                notes.graph.outputs = run()
        finally:
            for flat, held in notes.before.values():
                flat.copy_(held)
        notes.check()
        notes.graph.nbytes = sum(tensor.nbytes for call in notes.graph.calls for _, tensor in call.made)
        self.recorded.append(notes.graph)
        return notes.graph

    def renew(self) -> None:
        """Forget the graphs, which have memory of their own."""
        self.recorded.clear()
