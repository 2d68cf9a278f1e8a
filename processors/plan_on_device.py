"""`Plans`: how the rows of a step run on a GPU. The plan of a row depends on its own chain and draw alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from processors.edits_on_device import EDITING, DeviceEdits, edit_line
from processors.kernels.choice.parts import Control, without_stages
from processors.kernels.choice.run import Kind
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload

__all__ = ["FUSED", "Keeps", "Plan", "Plans"]

_Program = tuple[StageCall, ...]
_Stages = Sequence[tuple[str, Any]]  # names and parameters of stages, in order
_MOST_PLANS = 16
# What a step returns beside tokens: nothing, the processed logits, or also which ids each stage masks.
Keeps = Literal["tokens", "logits", "effects"]
FUSED = ("temperature", "min_p", "top_k", "top_p")


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Plan for the rows of these slots: the stages of `head` run first, then the kernels with `controls`.

    `edits`: masks and penalties done in the kernels. `before`: the calls of `head` and the calls that `edits`
    replaces. If logits are kept: `greedy` [R] bool, the greedy rows (None if there is none), and `effects`,
    each fused stage that masks with the controls of the stages up to it.
    """

    slots: tuple[int, ...]
    program: _Program
    splits: tuple[_Split, ...]
    head: _Program
    before: _Program
    edits: DeviceEdits | None
    controls: Tensor
    kind: Kind
    greedy: Tensor | None
    effects: tuple[tuple[str, Tensor], ...]

    @property
    def changes_logits(self) -> bool:
        """Whether a fused stage changes logits, as a temperature does."""
        return any(split.cuts for split in self.splits)


@dataclass(frozen=True, slots=True)
class _Split:
    """Calls of a row, by index in the program: run as stages (head), as edits, and as cuts of the kernels."""

    head: tuple[int, ...]
    edits: tuple[int, ...]
    cuts: tuple[int, ...]
    change: list[float]
    line: list[float]


class Plans:
    """Caches the plans of recent programs."""

    def __init__(self, pipeline: Pipeline, sampler: Sampler) -> None:
        self._pipeline, self._sampler = pipeline, sampler
        self._plans: dict[tuple[int, Keeps], Plan] = {}  # by id(program) and `Keeps`

    def of(self, rows: Rows, keeps: Keeps = "tokens") -> Plan:
        """Return the plan for the rows' slots; rebuilt when the pipeline's program changes."""
        program = self._pipeline.program(rows)
        key = id(program), keeps
        known = self._plans.get(key)
        if known is None or known.program is not program or known.slots != rows.host_slots:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            known = self._plans[key] = self._plan(program, rows, keeps)
        return known

    def _plan(self, program: _Program, rows: Rows, keeps: Keeps) -> Plan:
        splits, device = self._splits(program, rows), rows.slots.device
        draws, lines = self._sampler.draws(rows), [[*split.line] for split in splits]
        for line, draw in zip(lines, draws, strict=True):
            if keeps != "tokens":
                _keep_cuts(line)
            elif draw == "greedy":
                line[Control.GREEDY] = 1.0
            line[Control.INVERSE] = float(draw == "multinomial" and not line[Control.GREEDY])
        calls = _calls(program, [split.edits for split in splits])
        changes = [split.change for split in splits]
        is_greedy = [draw == "greedy" and keeps != "tokens" for draw in draws]
        return Plan(
            slots=rows.host_slots,
            program=program,
            splits=tuple(splits),
            head=_calls(program, [split.head for split in splits]),
            before=_calls(program, [split.head + split.edits for split in splits]),
            edits=DeviceEdits.of(calls, changes, self._pipeline, rows) if calls else None,
            controls=upload(lines, device, torch.float64),
            kind=_kind(lines),
            greedy=upload(is_greedy, device) if any(is_greedy) else None,
            effects=self._effects(program, splits, rows) if keeps == "effects" else (),
        )

    def _effects(
        self, program: _Program, splits: Sequence[_Split], rows: Rows
    ) -> tuple[tuple[str, Tensor], ...]:
        """Return for each fused stage that masks the controls of all cuts up to it, in program order."""
        found = []
        for number in sorted({number for split in splits for number in split.cuts}):
            lines = []
            for slot, split in zip(rows.host_slots, splits, strict=True):
                calls = [program[one] for one in split.cuts if one <= number]
                stages = [(call.stage, self._pipeline.values(slot, call)) for call in calls]
                lines.append((_cut_line(stages) if stages else None) or without_stages())
            is_masking = program[number].stage != "temperature" or any(line[Control.GREEDY] for line in lines)
            for line in lines:
                _keep_cuts(line)
            if is_masking:
                found.append((program[number].stage, upload(lines, rows.slots.device, torch.float64)))
        return tuple(found)

    def _splits(self, program: _Program, rows: Rows) -> list[_Split]:
        """Split the calls of each row into head, edits and cuts."""
        calls: list[list[int]] = [[] for _ in rows.host_slots]
        for number, call in enumerate(program):
            for place in range(len(rows)) if call.places is None else call.places:
                calls[place].append(number)
        known: dict[tuple[int, tuple[int, ...]], _Split] = {}
        found = []
        for slot, mine in zip(rows.host_slots, map(tuple, calls), strict=True):
            if (slot, mine) not in known:
                known[slot, mine] = self._split(program, slot, mine)
            found.append(known[slot, mine])
        return found

    def _split(self, program: _Program, slot: int, mine: tuple[int, ...]) -> _Split:
        """Fuse the longest suffix of a row's calls that controls and edits can express."""
        stages = [(program[number].stage, self._pipeline.values(slot, program[number])) for number in mine]
        line, first_cut = without_stages(), len(stages)
        while first_cut and (found := self._known(FUSED, _cut_line, stages[first_cut - 1 :])):
            line, first_cut = found, first_cut - 1
        change, first = edit_line(()) or [], first_cut
        while first and (found := self._known(EDITING, edit_line, stages[first - 1 : first_cut])):
            change, first = found, first - 1
        return _Split(mine[:first], mine[first:first_cut], mine[first_cut:], change, line)

    def _known(self, names: Sequence[str], line: Any, stages: _Stages) -> list[float] | None:
        """Return the kernel parameters equivalent to these stages; None if there are none."""
        name = stages[0][0]
        is_known = name in names and self._pipeline.registry.is_builtin(name)
        found: list[float] | None = line(stages) if is_known else None
        return found


def _calls(program: _Program, chosen: Sequence[Sequence[int]]) -> _Program:
    """Return the calls of a program, each restricted to the rows whose indices in `chosen` [R] include it."""
    places: list[list[int]] = [[] for _ in program]
    for place, numbers in enumerate(chosen):
        for number in numbers:
            places[number].append(place)
    found, looks = list[StageCall](), False
    for call, mine in zip(program, places, strict=True):
        looks |= call.looks_first  # also for a dropped call: the next one may mask faults
        if mine:
            every = None if len(mine) == len(chosen) else tuple(mine)
            found.append(replace(call, places=every, looks_first=looks))
            looks = False
    return tuple(found)


def _cut_line(stages: _Stages) -> list[float] | None:
    """Return the controls of a row equivalent to these stages, in order; None if there are none."""
    names, params = [name for name, _ in stages], dict(stages)
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


def _keep_cuts(line: list[float]) -> None:
    """Keep a row's cuts where its logits are kept; a temperature of 0 becomes top-k with k = 1."""
    if line[Control.GREEDY]:
        line[:] = without_stages()
        line[Control.TOP_K], line[Control.HEAT_DRAW] = 1.0, torch.finfo(torch.float32).tiny


def _kind(lines: Sequence[Sequence[float]]) -> Kind:
    """Return which kernels these controls need."""
    if all(line[Control.GREEDY] for line in lines):
        return "greedy"
    cuts = any(line[Control.MIN_P] or line[Control.TOP_K] or line[Control.TOP_P] < 1 for line in lines)
    if any(line[Control.INVERSE] for line in lines):
        return "cut-inverse" if cuts else "draw-inverse"
    return "cut" if cuts else "draw"
