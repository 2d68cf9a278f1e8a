"""`DeviceChoice`: the end of a chain and the draw on a GPU, in a few kernels for all rows of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.edits_on_device import EDITING, DeviceEdits, edit_line
from processors.graphs import Graphs
from processors.kernels.choice.parts import Control, without_stages
from processors.kernels.choice.run import Edits, Given, Kind, choose
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.sampler import Sampler
from processors.static_inputs import StaticInputs
from processors.upload import upload

__all__ = ["FUSED", "DeviceChoice"]

_Program = tuple[StageCall, ...]
_Lines = list[list[float]]
_MOST_PLANS = 16
FUSED = ("temperature", "min_p", "top_k", "top_p")


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How the rows of these slots are run: the calls before the fused ones, and the values of these.

    `edits`: the masks and penalties among the fused ones.
    """

    slots: tuple[int, ...]
    program: _Program
    head: _Program
    edits: DeviceEdits | None
    controls: Tensor
    kind: Kind


class DeviceChoice:
    """Chooses the tokens that `sampler(pipeline(logits, rows), rows)` chooses, on CUDA.

    The stages at the end of the chains are fused with the draw as far as the kernels know them; what comes
    before runs stage after stage. Rows draw by Gumbel-max, or take the largest logit. With `graphs` the
    kernels of logits that come to the same place again are recorded, and replayed as one launch.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, graphs: Graphs | None = None) -> None:
        self._pipeline, self._sampler = pipeline, sampler
        self._plans: dict[int, _Plan] = {}  # by the id of their program
        self._graphs, self._static = graphs, StaticInputs()

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative ones as those of Sampler."""
        plan = self._planned(rows)
        head, edits = plan.head, plan.edits
        if edits and not edits.apply_to(rows):
            head, edits = head + edits.calls, None
        work = self._pipeline.run(head, logits, rows) if head else logits
        given = Given(work, plan.controls, rows.seeds, rows.positions)
        return self._chosen(given, plan.kind, edits.given(rows) if edits else None)

    def _chosen(self, given: Given, kind: Kind, edits: Edits | None) -> Tensor:
        """Return the tokens, by a graph if there is one for these shapes and addresses."""
        if self._graphs is None or not self._graphs.records:
            return choose(given, kind, edits)
        given, edits = self._held(given, edits)
        tensors = [one for one in (*given, *(edits or ())) if one is not None]
        places = tuple((one.data_ptr(), one.shape, one.stride(), one.dtype) for one in tensors)
        has = tuple(one is not None for one in edits or ())
        found = self._graphs.run((kind, has, places), lambda: choose(given, kind, edits))
        assert isinstance(found, Tensor)
        return found.clone()  # the next replay overwrites it

    def _held(self, given: Given, edits: Edits | None) -> tuple[Given, Edits | None]:
        """Return what is given, but for logits and history in tensors that stay where they are."""
        new = {name: one for name, one in given._asdict().items() if name != "logits"}
        for name, one in edits._asdict().items() if edits else ():
            if one is not None and name not in ("tokens", "prompts"):
                new[name] = one
        key = tuple((name, one.shape, one.dtype) for name, one in new.items())
        held = dict(zip(new, self._static.hold(key, list(new.values())), strict=True))
        mine = {name: one for name, one in held.items() if name in Given._fields}
        others = {name: one for name, one in held.items() if name in Edits._fields}
        return given._replace(**mine), edits._replace(**others) if edits else None

    def _planned(self, rows: Rows) -> _Plan:
        """Return the plan of the rows' slots, made anew if one has changed."""
        program = self._pipeline.program(rows)
        known = self._plans.get(id(program))
        if known is None or known.program is not program or known.slots != rows.host_slots:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            known = self._plans[id(program)] = self._plan(program, rows)
        return known

    def _plan(self, program: _Program, rows: Rows) -> _Plan:
        """Fuse as many of the last calls as the controls can say."""
        first = len(program)
        while first and self._may_be_fused(program[first - 1]):
            first -= 1
        while (found := self._lines(program[first:], rows)) is None:
            first += 1
        lines, changes = found
        for line, draw in zip(lines, self._sampler.draws(rows), strict=True):
            if draw == "greedy":
                line[Control.GREEDY] = 1.0
        calls = tuple(call for call in program[first:] if call.stage in EDITING)
        return _Plan(
            slots=rows.host_slots,
            program=program,
            head=program[:first],
            edits=DeviceEdits.of(calls, changes, self._pipeline, rows) if calls else None,
            controls=upload(lines, rows.slots.device, torch.float64),
            kind=_kind(lines),
        )

    def _may_be_fused(self, call: StageCall) -> bool:
        return call.stage in (*FUSED, *EDITING) and self._pipeline.registry.is_builtin(call.stage)

    def _lines(self, calls: _Program, rows: Rows) -> tuple[_Lines, _Lines] | None:
        """Return the controls and the edits of the rows for the calls; None if they cannot say them."""
        lines, changes = [], []
        for place, slot in enumerate(rows.host_slots):
            mine = [call for call in calls if call.places is None or place in call.places]
            stages = [(call.stage, self._pipeline.values(slot, call)) for call in mine]
            editing = [stage for stage in stages if stage[0] in EDITING]
            line, change = _line(stages[len(editing) :]), edit_line(editing)
            if line is None or change is None:  # None for a stage that edits behind others, too
                return None
            lines.append(line)
            changes.append(change)
        return lines, changes


def _line(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the controls of a row with these stages, in order; None if there are none that mean the same."""
    names, params = [name for name, _ in stages], dict(stages)
    if not set(names) <= set(FUSED):
        return None
    is_known = len(params) == len(stages) and all(getattr(one, "keep", 1) == 1 for one in params.values())
    if not is_known or "temperature" in names[1:-1]:
        return None
    line = without_stages()
    if heat := params.get("temperature"):
        smallest, largest = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
        line[Control.GREEDY] = float(heat.temperature == 0)
        line[Control.HEAT_DRAW] = min(max(heat.temperature, smallest), largest)
        line[Control.HEAT_CUT] = line[Control.HEAT_DRAW] if names[0] == "temperature" else 0.0
    if min_p := params.get("min_p"):
        line[Control.MIN_P] = min_p.p
        line[Control.IS_MIN_LATE] = float("top_p" in names[: names.index("min_p")])
    if top_k := params.get("top_k"):
        line[Control.TOP_K], line[Control.KEEP_TIES] = top_k.k, float(top_k.ties == "keep")
        line[Control.IS_K_LATE] = float("top_p" in names[: names.index("top_k")])
    if top_p := params.get("top_p"):
        line[Control.TOP_P], line[Control.EXCLUSIVE] = top_p.p, float(top_p.boundary == "exclusive")
    return line


def _kind(lines: Sequence[Sequence[float]]) -> Kind:
    """Return which kernels these controls need."""
    if all(line[Control.GREEDY] for line in lines):
        return "greedy"
    cuts = any(line[Control.MIN_P] or line[Control.TOP_K] or line[Control.TOP_P] < 1 for line in lines)
    return "cut" if cuts else "draw"
