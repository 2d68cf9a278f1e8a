"""`DeviceEdits`: the masks, biases and penalties of a step on a GPU, in one kernel for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.grammar.backends.bits import forbid, pack, words
from processors.kernels.choice.edits import NUM_EDITS, Edit, Listed, Turn
from processors.kernels.choice.run import Edits
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.stages.bias import Bias
from processors.stages.grammar import GrammarStage
from processors.stages.lists import IdStage
from processors.upload import copy_to, upload

__all__ = ["EDITING", "DeviceEdits", "edit_line"]

_TURNS = {
    "bias": Turn.BIAS,
    "repetition": Turn.REPETITION,
    "frequency": Turn.FREQUENCY,
    "presence": Turn.PRESENCE,
}
_PENALTIES = {"repetition": Edit.REPETITION, "frequency": Edit.FREQUENCY, "presence": Edit.PRESENCE}
# The stages with a list of ids, and what it means for each.
_LISTS = {
    "suppress": Listed.MASKED,
    "ignore_eos": Listed.MASKED,
    "begin_suppress": Listed.FIRST,
    "min_tokens": Listed.EARLY,
    "repetition": Listed.NO_REPETITION,
    "frequency": Listed.NO_FREQUENCY,
    "presence": Listed.NO_PRESENCE,
}
EDITING = ("tail", "allowed", "grammar", "bias", *_LISTS)
_SCOPES = ("prompt", "output", "both")
_ALL = 2.0**62  # more than any id, and any number of tokens
_MOST_LISTED = 256  # ids of a list; more become a bit mask


def edit_line(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the edits of a row with these stages, in order; None if there are none that mean the same.

    Masks may stand anywhere, as a masked token stays masked.
    """
    params = dict(stages)
    if (own := params.get("repetition")) and (own.slope, own.sustain) != (1.0, None):
        return None
    line = [0.0] * NUM_EDITS
    line[Edit.SIZE] = params["tail"].size if "tail" in params else _ALL
    line[Edit.EARLY] = params["min_tokens"].count if "min_tokens" in params else 0
    for name, first in _PENALTIES.items():
        if one := params.get(name):
            line[first : first + 3] = [one.penalty, _SCOPES.index(one.scope), one.window or _ALL]
    turns = [float(_TURNS[name]) for name, _ in stages if name in _TURNS]
    line[Edit.TURNS : Edit.TURNS + len(turns)] = turns
    return line


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEdits:
    """The edits [R, E] float64 of the rows of a step, and the lists [R, N] int64 of ids that they name.

    `values` [R, N] float64 are those of biases. `masks` [R, W] int32 on the host allow ids. `grammars`: the
    stages whose masks change from step to step.
    """

    edits: Tensor
    lists: Tensor | None
    values: Tensor | None
    masks: Tensor | None
    fixed_masks: Tensor | None
    grammars: tuple[tuple[StageCall, GrammarStage], ...]

    @classmethod
    def of(
        cls, calls: tuple[StageCall, ...], lines: Sequence[Sequence[float]], pipeline: Pipeline, rows: Rows
    ) -> DeviceEdits:
        """Build from the calls that do the same, and the lines of the rows, see `edit_line`."""
        device, named = rows.slots.device, _Named(rows, pipeline.env.vocab_size)
        stages = [(call, pipeline.stage(*call.key)) for call in calls]
        for call, stage in stages:
            for place in range(len(rows)) if call.places is None else call.places:
                named.add(place, call.stage, stage)
        lists, values = named.tables() if {"bias", *_LISTS} & {call.stage for call in calls} else (None, None)
        return cls(
            upload(lines, device, torch.float64),
            None if lists is None else copy_to(device, lists),
            None if values is None else copy_to(device, values),
            named.masks,
            None if named.masks is None else copy_to(device, named.masks),
            tuple((call, one) for call, one in stages if isinstance(one, GrammarStage)),
        )

    @staticmethod
    def apply_to(rows: Rows) -> bool:
        """Whether the kernels know these rows: they see no forced tokens."""
        return not rows.has_forced

    def given(self, rows: Rows) -> Edits:
        """Return what the kernels read in this step."""
        masks, history = self._masks(rows), rows.history
        if self.lists is None:
            return Edits(self.edits, masks)
        seen = history.tokens, history.lengths, history.prompt_lengths
        own = rows.slots, rows.drafts, rows.offsets
        return Edits(self.edits, masks, self.lists, self.values, *seen, *own)

    def _masks(self, rows: Rows) -> Tensor | None:
        """Return the bit masks of this step; None where all tokens are allowed."""
        found: Tensor | None = None
        for call, stage in self.grammars:
            places = range(len(rows)) if call.places is None else call.places
            mine = stage.host_masks(rows if call.places is None else rows.select(call.places))
            if mine is not None:
                if found is None:
                    every = torch.full((len(rows), mine.shape[1]), -1, dtype=mine.dtype)
                    found = every if self.masks is None else self.masks.clone()
                found[list(places)] &= mine
        return self.fixed_masks if found is None else copy_to(rows.slots.device, found)


class _Named:
    """The ids that the stages of each row name, on the host."""

    def __init__(self, rows: Rows, width: int) -> None:
        self._slots, self._width = rows.host_slots, width
        self._entries: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self._values: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self.masks: Tensor | None = None  # [R, W]

    def add(self, place: int, name: str, stage: Any) -> None:
        """Add what a stage names in a row."""
        slot = self._slots[place]
        if name == "allowed":
            self._mask(place).bitwise_and_(pack(stage.ids.numbers(slot), words(self._width)))
        elif isinstance(stage, Bias):
            self._list(place, stage.ids.numbers(slot), Listed.BIASED, stage.values.numbers(slot))
        elif isinstance(stage, IdStage):
            ids = stage.ids.numbers(slot)
            ids = ids[ids < self._width]  # a tokenizer may have ids without logits
            if _LISTS[name] == Listed.MASKED and len(ids) > _MOST_LISTED:
                forbid(self._mask(place), ids)
            else:
                self._list(place, ids, _LISTS[name], torch.zeros(len(ids), dtype=torch.float64))

    def tables(self) -> tuple[Tensor, Tensor | None]:
        """Return the lists [R, N] and their values [R, N], None if no row has any."""
        lists = _padded(self._entries, torch.int64, -1)
        is_biased = bool(((lists >= 0) & ((lists >> 32 & Listed.BIASED) > 0)).any())
        return lists, _padded(self._values, torch.float64, 0) if is_biased else None

    def _list(self, place: int, ids: Tensor, meaning: Listed, values: Tensor) -> None:
        self._entries[place].append(ids | (int(meaning) << 32))
        self._values[place].append(values)

    def _mask(self, place: int) -> Tensor:
        if self.masks is None:
            self.masks = torch.full((len(self._slots), words(self._width)), -1, dtype=torch.int32)
        return self.masks[place]


def _padded(runs: Sequence[Sequence[Tensor]], dtype: torch.dtype, fill: float) -> Tensor:
    """Return the runs of each row behind each other [R, N]."""
    longest = max(sum(map(len, own)) for own in runs)
    found = torch.full((len(runs), longest), fill, dtype=dtype)
    for row, own in zip(found, runs, strict=True):
        if own:
            joined = torch.cat(list(own))
            row[: len(joined)] = joined
    return found
