"""`DeviceEdits`: the masks and penalties of a step on a GPU, in two kernels for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.kernels.choice.edits import NUM_EDITS, Edit, Listed
from processors.kernels.choice.run import Edits
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.stages.grammar import GrammarStage
from processors.stages.lists import IdStage
from processors.upload import copy_to, upload

__all__ = ["EDITING", "DeviceEdits", "edit_line"]

_PENALTIES = {"repetition": Edit.REPETITION, "frequency": Edit.FREQUENCY, "presence": Edit.PRESENCE}
# The stages that the kernels know, and what a list of ids means for each.
_LISTS = {
    "suppress": Listed.MASKED,
    "ignore_eos": Listed.MASKED,
    "repetition": Listed.NO_REPETITION,
    "frequency": Listed.NO_FREQUENCY,
    "presence": Listed.NO_PRESENCE,
}
EDITING = ("tail", "grammar", *_LISTS)
_SCOPES = ("prompt", "output", "both")
_ALL = 2.0**62  # more than any id, and any number of tokens


def edit_line(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the edits of a row with these stages, in order; None if there are none that mean the same."""
    names, params = [name for name, _ in stages], dict(stages)
    penalties = [name for name in names if name in _PENALTIES]
    in_order = [name for name in _PENALTIES if name in penalties]
    is_known = len(params) == len(stages) and penalties == in_order
    if not is_known or names[len(names) - len(penalties) :] != penalties:
        return None
    if (own := params.get("repetition")) and (own.slope, own.sustain) != (1.0, None):
        return None
    line = [0.0] * NUM_EDITS
    line[Edit.SIZE] = params["tail"].size if "tail" in params else _ALL
    for name in penalties:
        one, first = params[name], _PENALTIES[name]
        line[first : first + 3] = [one.penalty, _SCOPES.index(one.scope), one.window or _ALL]
    return line


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEdits:
    """The edits [R, E] float64 of the rows of a step, and the lists [R, N] int64 of ids that they name.

    `calls`: the stages that do the same. `grammars`: those of them that are grammars.
    """

    calls: tuple[StageCall, ...]
    edits: Tensor
    lists: Tensor | None
    grammars: tuple[tuple[StageCall, GrammarStage], ...]

    @classmethod
    def of(
        cls, calls: tuple[StageCall, ...], lines: Sequence[Sequence[float]], pipeline: Pipeline, rows: Rows
    ) -> DeviceEdits:
        """Build from the lines of the rows, see `edit_line`."""
        stages = [(call, pipeline.stage(*call.key)) for call in calls]
        lists = [_entries(call, one, rows) for call, one in stages if isinstance(one, IdStage)]
        return cls(
            calls,
            upload(lines, rows.slots.device, torch.float64),
            torch.cat(lists, 1) if lists else None,
            tuple((call, one) for call, one in stages if isinstance(one, GrammarStage)),
        )

    @staticmethod
    def apply_to(rows: Rows) -> bool:
        """Whether the kernels know these rows: they see no drafts, and no forced tokens."""
        return not rows.drafts.shape[1] and not rows.has_forced

    def given(self, rows: Rows) -> Edits:
        """Return what the kernels read in this step."""
        masks, history = self._masks(rows), rows.history
        if self.lists is None:
            return Edits(self.edits, masks=masks)
        seen = history.tokens, history.lengths, history.prompt_lengths, rows.slots
        return Edits(self.edits, self.lists, masks, *seen)

    def _masks(self, rows: Rows) -> Tensor | None:
        """Return the bit masks of the grammars for this step; None where all tokens are allowed."""
        found: Tensor | None = None
        for call, stage in self.grammars:
            places = range(len(rows)) if call.places is None else call.places
            mine = stage.host_masks(rows if call.places is None else rows.select(call.places))
            if mine is not None:
                found = (
                    torch.full((len(rows), mine.shape[1]), -1, dtype=mine.dtype) if found is None else found
                )
                found[list(places)] &= mine
        return None if found is None else copy_to(rows.slots.device, found)


def _entries(call: StageCall, stage: IdStage[Any], rows: Rows) -> Tensor:
    """Return the list of each row [R, N] with what it means."""
    ids, filled = stage.ids.gather(rows if call.places is None else rows.select(call.places))
    is_known = filled & (ids < stage.env.vocab_size)  # a tokenizer may have ids without logits
    entries = torch.where(is_known, ids | (_LISTS[call.stage] << 32), -1)
    if call.places is None:
        return entries
    all_rows = entries.new_full((len(rows), entries.shape[1]), -1)
    return all_rows.index_copy_(0, upload(call.places, ids.device), entries)
