"""Decode steps of a decoder in static shapes, which graphs can replay."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gencli.core.step import Feed
from gencli.models.decoder.decoder import Decoder
from gencli.models.decoder.layers import Pass
from gencli.models.kv.static_steps import StaticInputs, StaticSteps, StepRows
from processors.graphs import Graphs

__all__ = ["DecodeSteps"]


class DecodeSteps:
    """Runs steps of one token a feed, or of one with draft tokens, which `graphs` record."""

    def __init__(self, decoder: Decoder, graphs: Graphs) -> None:
        self._decoder = decoder
        self._steps = StaticSteps(graphs, decoder.device, decoder.spec.rope_switches)

    def __call__(
        self, feeds: Sequence[Feed], rows: StepRows, buffers: Sequence[Tensor], ids: Tensor | None = None
    ) -> Tensor:
        """Return the wanted logits [R, V], a new tensor.

        `feeds` have buffer rows as lanes; the capacity of the buffers is that of `roomy`. `ids` [R] on the
        device replace the tokens.
        """
        capacity = buffers[0].shape[2]
        placed = (*buffers, *(table.reserve(capacity) for table in self._decoder.tables))
        return self._steps(feeds, rows, placed, capacity, lambda inputs: self._run(inputs, buffers), ids)

    def free(self) -> None:
        """Drop the graphs, whose buffers are freed."""
        self._steps.free()

    def _run(self, inputs: StaticInputs, buffers: Sequence[Tensor]) -> Tensor:
        """Run the decoder on static tensors; return the logits [rows, V]."""
        from gencli.models.decoder.decode_attention import DecodePlan

        tables = self._decoder.tables
        ropes = tuple(table.rows(inputs.positions, inputs.factors, 0) for table in tables)
        plan = DecodePlan(inputs.rows, inputs.positions, inputs.end)
        return self._decoder(inputs.ids, Pass(plan, ropes), buffers, None)
