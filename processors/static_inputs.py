"""`StaticInputs`: copies of inputs at fixed addresses, for a captured CUDA graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

__all__ = ["StaticInputs"]

_MOST = 64  # keys whose tensors are kept


class StaticInputs:
    """Copies of given tensors, by key, at addresses that stay the same as long as the key is kept.

    A given tensor that is the same object as at the last call is not copied again, so it must not have been
    changed in place.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, tuple[tuple[Tensor, ...], list[Tensor | None]]] = OrderedDict()

    def hold(self, key: Hashable, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the key's tensors, filled with the given values. Equal keys have equal shapes."""
        if key not in self._held:
            if len(self._held) >= _MOST:
                self._held.popitem(last=False)
            tensors = tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in given)
            self._held[key] = tensors, [None] * len(tensors)
        self._held.move_to_end(key)
        tensors, last = self._held[key]
        for place, (held, one) in enumerate(zip(tensors, given, strict=True)):
            if one is not last[place]:
                held.copy_(one, non_blocking=True)
                last[place] = one
        return tensors
