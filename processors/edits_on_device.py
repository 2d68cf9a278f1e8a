"""`DeviceEdits`: the masks, biases and penalties of a step on a GPU, in one kernel for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.grammar.grammar_backend import forbid, pack, words
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
# Stages with a list of ids, and the flag of each in the kernels.
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
_ALL = 2.0**62  # above any id and any number of tokens
_MOST_LISTED = 256  # ids of a list; a longer list becomes a bit mask


def edit_line(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the parameters [E] of a row's edits for these stages, in order; None if no edits are equivalent.

    Masks may be anywhere in the order, because a masked token stays masked.
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
    """Inputs of the edit kernels: `edits` [R, E] float64, parameters by row, and `lists` [R, N] int64 of ids.

    `values` [R, N] float64: biases of the ids in `lists`. `masks` [R, W] int32, on the host: bit masks of
    allowed ids; `fixed_masks`, their copy on the device. `grammars`: stages whose masks change each step.
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
        """Build from the calls that the edits replace, and the parameters of each row (see `edit_line`)."""
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
        """Whether the kernels support these rows: none with forced tokens."""
        return not rows.has_forced

    def given(self, rows: Rows) -> Edits:
        """Return the inputs of the kernels for this step."""
        masks, history = self._masks(rows), rows.history
        if self.lists is None:
            return Edits(self.edits, masks)
        seen = history.tokens, history.lengths, history.prompt_lengths
        own = rows.slots, rows.drafts, rows.offsets
        return Edits(self.edits, masks, self.lists, self.values, *seen, *own)

    def _masks(self, rows: Rows) -> Tensor | None:
        """Return the bit masks [R, W] of this step; None if all tokens are allowed."""
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
    """Collects, on the host, the ids that the stages of each row list."""

    def __init__(self, rows: Rows, width: int) -> None:
        self._slots, self._width = rows.host_slots, width
        self._entries: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self._values: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self.masks: Tensor | None = None  # [R, W]

    def add(self, place: int, name: str, stage: Any) -> None:
        """Add the ids that a stage lists for the row `place`."""
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
    """Return the concatenated runs of each row, padded to [R, N]."""
    longest = max(sum(map(len, own)) for own in runs)
    found = torch.full((len(runs), longest), fill, dtype=dtype)
    for row, own in zip(found, runs, strict=True):
        if own:
            joined = torch.cat(list(own))
            row[: len(joined)] = joined
    return found
