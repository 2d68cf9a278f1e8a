"""The kernels of a choice on static tensors, so that a graph can replay them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from torch import Tensor

from processors.graphs import Graphs, bucket_of
from processors.kernels.choice.run import Kind, choose

__all__ = ["ChoiceSteps"]


class _Inputs(NamedTuple):
    """Static inputs of as many rows as a bucket has, as for `choose`."""

    logits: Tensor
    controls: Tensor
    seeds: Tensor
    positions: Tensor


class ChoiceSteps:
    """Runs `choose` on copies of its inputs in static tensors, which `graphs` record by rows and kind.

    Rows that fill a bucket hold what was there before; their tokens are dropped.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._inputs: dict[Hashable, _Inputs] = {}  # by rows, width and dtype of the logits

    def __call__(
        self, logits: Tensor, controls: Tensor, seeds: Tensor, positions: Tensor, *, kind: Kind
    ) -> Tensor:
        """Return tokens [R] int64, as `choose`: a new tensor."""
        given = _Inputs(logits, controls, seeds, positions)
        key = (bucket_of(len(logits)), logits.shape[1], logits.dtype)
        if key not in self._inputs:
            self._inputs[key] = _Inputs(*(one.new_zeros(key[0], *one.shape[1:]) for one in given))
        static = self._inputs[key]
        for place, one in zip(static, given, strict=True):
            place[: len(one)].copy_(one)
        tokens = self._graphs.run((*key, kind), lambda: choose(*static, kind=kind))
        assert isinstance(tokens, Tensor)
        return tokens[: len(logits)].clone()  # the next replay overwrites them

    def free(self) -> None:
        """Drop the graphs and the static tensors."""
        self._graphs.clear()
        self._inputs.clear()
