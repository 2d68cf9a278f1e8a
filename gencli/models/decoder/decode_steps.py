"""Steps of one token a row, in shapes that depend on buckets only, so that graphs can replay them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.decoder.decoder import Decoder
from gencli.models.decoder.layers import Pass
from gencli.models.kv.lengths import STEP
from gencli.models.longrope import factors_of
from processors.graphs import Graphs, bucket_of
from processors.upload import upload_into

__all__ = ["SPARE_ROWS", "DecodeSteps", "is_decode_step", "num_filled", "roomy"]

SPARE_ROWS = 1  # more than lanes, so that the rows that fill a bucket always have one to write to

_PARTS = 4  # capacities between two powers of two


def is_decode_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token with wanted logits."""
    return all(len(feed.tokens) == 1 and feed.num_logits == 1 for feed in feeds)


def num_filled(feeds: Sequence[Feed]) -> int:
    """Return how many rows fill up the bucket of a decode step of these feeds."""
    return bucket_of(len(feeds)) - len(feeds)


def roomy(length: int, context: int) -> int:
    """Return the capacity (tokens) of buffers for `length` tokens: some room to grow, a quarter at most.

    Each growth moves the buffers, after which steps are recorded anew.
    """
    step = max(STEP, (1 << (length - 1).bit_length()) // (2 * _PARTS))
    return min(_up(length, step), _up(context, STEP))


class DecodeSteps:
    """Runs steps of one token a feed. `graphs` record them by the bucket of rows and that of keys.

    The inputs of a bucket are one static tensor [3 or 4, rows]: buffer rows, positions, with a long rope the
    numbers of the rotary factors, ids. Rows are filled up to their bucket with tokens in a row of the buffers
    that no lane has. Without a graph the same shapes are launched one by one.
    """

    def __init__(self, decoder: Decoder, graphs: Graphs) -> None:
        self._decoder, self._graphs = decoder, graphs
        self._inputs: dict[int, Tensor] = {}  # by the number of rows
        self._placed: tuple[Tensor, ...] = ()  # tensors whose addresses are in the graphs

    def __call__(
        self, feeds: Sequence[Feed], buffers: Sequence[Tensor], spare: int, ids: Tensor | None = None
    ) -> Tensor:
        """Return the logits [R, V], a new tensor.

        `feeds` have buffer rows as lanes; the capacity of the buffers is that of `roomy`. `spare` is a row
        without a lane. `ids` [R] on the device replace the tokens.
        """
        tables, capacity = self._decoder.tables, buffers[0].shape[2]
        placed = (*buffers, *(table.reserve(capacity) for table in tables))
        if len(placed) != len(self._placed) or not all(map(is_, placed, self._placed)):
            self._graphs.clear()
            self._placed = placed
        inputs = self._fill(feeds, spare, ids)
        end = min(max(STEP, 1 << (max(feed.end for feed in feeds) - 1).bit_length()), capacity)
        made = self._graphs.run((inputs.shape[1], end), lambda: self._run(inputs, end, buffers))
        assert isinstance(made, Tensor)
        logits = made[: len(feeds)]
        return logits.clone() if self._graphs.records else logits  # the next replay overwrites them

    def free(self) -> None:
        """Drop the graphs, whose buffers are freed."""
        self._graphs.clear()
        self._placed = ()

    def _fill(self, feeds: Sequence[Feed], spare: int, ids: Tensor | None) -> Tensor:
        """Write the inputs of the feeds into the static tensor of their bucket, in one copy from the host."""
        bucket = bucket_of(len(feeds))
        switches = self._decoder.spec.rope_switches
        fill = [0] * (bucket - len(feeds))
        columns = [
            *(feed.lane for feed in feeds),
            *(spare for _ in fill),
            *(feed.start for feed in feeds),
            *fill,
        ]
        if switches:
            columns += [*(factors_of(feed, switches) for feed in feeds), *fill]
        if ids is None:
            columns += [*(feed.tokens[0] for feed in feeds), *fill]
        if bucket not in self._inputs:
            height = 4 if switches else 3
            self._inputs[bucket] = torch.zeros(height, bucket, dtype=torch.int64, device=self._decoder.device)
        inputs = self._inputs[bucket]
        upload_into(columns, inputs.view(-1)[: len(columns)])
        if ids is not None:
            inputs[-1, : len(feeds)].copy_(ids)
        return inputs

    def _run(self, inputs: Tensor, end: int, buffers: Sequence[Tensor]) -> Tensor:
        """Run the decoder on static tensors; return the logits [bucket, V]."""
        from gencli.models.decoder.decode_attention import DecodePlan

        rows, positions, *factors, ids = inputs
        ropes = tuple(
            table.rows(positions, factors[0] if factors else None, 0) for table in self._decoder.tables
        )
        return self._decoder(ids, Pass(DecodePlan(rows, positions, end), ropes), buffers, None)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
