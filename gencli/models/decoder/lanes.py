"""KV lanes of a decoder: all feeds of a step are one row of tokens, in one forward pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from gencli.core.step import Feed, cells_of, fed_to, room_for, wanted_of
from gencli.models.decoder.attention import AttentionPlan, DevicePlan, SdpaPlan
from gencli.models.decoder.bags import TILE, BagTables, Cells
from gencli.models.decoder.decode_steps import DecodeSteps
from gencli.models.decoder.decoder import Decoder, Inside
from gencli.models.decoder.layers import Pass
from gencli.models.decoder.tiled import TiledPlan
from gencli.models.kv.buffers import LaneBuffer, LaneStore
from gencli.models.kv.formats import stored_width
from gencli.models.kv.lengths import STEP, LaneLengths
from gencli.models.kv.static_steps import (
    SPARE_ROWS,
    is_decode_step,
    is_drafted_step,
    roomy,
    step_rows,
)
from gencli.models.longrope import factors_of
from processors.graphs import Graphs
from processors.upload import upload

__all__ = ["DecoderLanes"]


class DecoderLanes:
    """Lanes that share one buffer per layer, with keys and values side by side.

    They are stored in `kv_dtype`, by default that of the decoder. With `is_fixed` the attention of a token
    has the same bits on a GPU whatever is computed beside it; on a CPU it has in any case. With `graphs`
    steps of one token a feed, or of one with draft tokens, have shapes that these can record.
    """

    can_rollback = True

    def __init__(
        self,
        decoder: Decoder,
        lengths: LaneLengths,
        kv_dtype: torch.dtype | None = None,
        *,
        is_fixed: bool = False,
        graphs: Graphs | None = None,
    ) -> None:
        self._decoder, self._is_fixed = decoder, is_fixed and decoder.device.type != "cpu"
        self._steps = None if graphs is None else DecodeSteps(decoder, graphs)
        self._store = LaneStore(lengths, spare=0 if graphs is None else SPARE_ROWS)
        formats = {decoder.dtype, kv_dtype or decoder.dtype}
        self._is_tiled = graphs is None and decoder.device.type == "cpu" and formats == {torch.float32}
        tile = TILE if self._is_tiled else 1
        self._buffers = [LaneBuffer(self._store.rows, tile=tile) for _ in decoder.layers]
        self._store.buffers = self._buffers
        spec = decoder.spec
        self._tables = BagTables(spec.num_heads, spec.scale)
        self._cells: Cells | None = None
        self._like = torch.empty(
            1,
            2 * spec.num_kv_heads,
            0,
            stored_width(kv_dtype or decoder.dtype, spec.head_dim),
            dtype=kv_dtype or decoder.dtype,
            device=decoder.device,
        )

    def forward(
        self,
        feeds: tuple[Feed, ...],
        inside: Inside | None = None,
        lanes: Collection[int] = (),
        ids: Tensor | None = None,
    ) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order.

        `inside` gets states of the pass: the last ones are those of all tokens fed to `lanes`. `ids` [N]
        int64 on the device replace the tokens of the feeds.
        """
        if inside and lanes:
            inside.places = upload(fed_to(lanes, feeds), self._decoder.device)
        feeds = self._store.seat(feeds)
        num_rows, length = room_for(feeds)
        capacity = length if self._steps is None else roomy(length, self._decoder.spec.context)
        static = None
        may_be_static = self._steps is not None and inside is None
        if may_be_static and (is_decode_step(feeds) or is_drafted_step(feeds)):
            static = step_rows(feeds, self._store.rows.spare)
            num_rows = static.num_held
        buffers = [buffer.reserve(num_rows, capacity, like=self._like) for buffer in self._buffers]
        if self._steps is not None and static is not None:
            return self._steps(feeds, static, buffers, ids)
        held = cells_of(feeds)
        rows, positions = zip(*held, strict=True)
        tokens = [token for feed in feeds for token in feed.tokens]
        packed = upload([tokens, positions, rows], self._decoder.device)
        wanted = wanted_of(feeds)
        if not wanted:
            wanted_rows: Tensor | None = packed.new_empty(0)
        else:
            wanted_rows = None if len(wanted) == len(tokens) else upload(wanted, self._decoder.device)
        ropes = self._ropes(feeds, packed[1], length)
        step: Pass[AttentionPlan] | Pass[DevicePlan]
        if packed.is_cuda:
            from gencli.models.decoder.mixed_attention import device_plan

            end = -(-length // STEP) * STEP
            step = Pass(device_plan(feeds, (packed[2], packed[1]), end, is_fixed=self._is_fixed), ropes)
        else:
            step = Pass(self._plan(feeds, held, packed, buffers[0]), ropes)
        return self._decoder(packed[0] if ids is None else ids, step, buffers, wanted_rows, inside)

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds without growing. No lane of them is empty."""
        num_rows, length = room_for(feeds := self._store.seat(feeds))
        if self._steps is not None:
            num_rows = step_rows(feeds, self._store.rows.spare).num_held
        return self._store.holds(num_rows, length)

    def _plan(
        self, feeds: tuple[Feed, ...], held: Sequence[tuple[int, int]], packed: Tensor, buffer: Tensor
    ) -> AttentionPlan:
        """Return the attention of a pass without kernels of our own; `packed` has ids, positions and rows."""
        if not self._is_tiled:
            return SdpaPlan(feeds, (packed[2], packed[1]), self._decoder.dtype)
        if self._cells is None or self._cells.shape != buffer.shape:
            self._cells = Cells(buffer.shape)
        return TiledPlan(feeds, held, self._cells, self._tables, self._decoder.spec.num_heads)

    def truncate(self, lane: int, length: int) -> None:
        """No-op: tokens beyond a lane's length are not read."""

    def fork(self, source: int, target: int) -> None:
        """Copy the keys and values of one lane to another."""
        self._store.fork(source, target)

    def release(self, lane: int) -> None:
        """Zero the lane and free its row."""
        self._store.wipe(lane)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def free_cache(self) -> None:
        """Free the buffers; they grow again on demand."""
        self._store.free_cache()
        if self._steps is not None:
            self._steps.free()
        self._tables.clear()

    def _ropes(
        self, feeds: Sequence[Feed], positions: Tensor, length: int
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return cosines and sines of the fed tokens, for each rope of the decoder."""
        factors = None
        if switches := self._decoder.spec.rope_switches:
            numbers = [factors_of(feed, switches) for feed in feeds for _ in feed.tokens]
            factors = upload(numbers, positions.device)
        return tuple(table.rows(positions, factors, length) for table in self._decoder.tables)
