"""`DeviceChoice`: the end of a chain and the draw on a GPU, in a few kernels for all rows of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.choice_steps import ChoiceSteps
from processors.graphs import Graphs
from processors.kernels.choice.parts import Control
from processors.kernels.choice.run import Kind, choose
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload

__all__ = ["FUSED", "DeviceChoice"]

_Program = tuple[StageCall, ...]
_MOST_PLANS = 16
FUSED = ("temperature", "min_p", "top_k", "top_p")
_OFF = {Control.TOP_P: 1.0}  # values of a stage that is off, if not 0


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How the rows of these slots are run: the calls before the fused ones, and the values of these."""

    slots: tuple[int, ...]
    program: _Program
    head: _Program
    controls: Tensor
    kind: Kind


class DeviceChoice:
    """Chooses the tokens that `sampler(pipeline(logits, rows), rows)` chooses, on CUDA.

    The stages at the end of the chains are fused with the draw as far as the kernels know them; what comes
    before runs stage after stage. Rows draw by Gumbel-max, or take the largest logit. `graphs` record the
    kernels.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, graphs: Graphs | None = None) -> None:
        self._pipeline, self._sampler = pipeline, sampler
        self._choose = choose if graphs is None else ChoiceSteps(graphs)
        self._plans: dict[int, _Plan] = {}  # by the id of their program

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative ones as those of Sampler."""
        plan = self._planned(rows)
        work = self._pipeline.run(plan.head, logits, rows) if plan.head else logits
        return self._choose(work, plan.controls, rows.seeds, rows.positions, kind=plan.kind)

    def free(self) -> None:
        """Free the memory that is kept between steps."""
        self._plans.clear()
        if isinstance(self._choose, ChoiceSteps):
            self._choose.free()

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
        while (found := self._controls(program[first:], rows)) is None:
            first += 1
        for line, draw in zip(found, self._sampler.draws(rows), strict=True):
            if draw == "greedy":
                line[Control.GREEDY] = 1.0
        return _Plan(
            slots=rows.host_slots,
            program=program,
            head=program[:first],
            controls=upload(found, rows.slots.device, torch.float64),
            kind=_kind(found),
        )

    def _may_be_fused(self, call: StageCall) -> bool:
        return call.stage in FUSED and self._pipeline.registry.is_builtin(call.stage)

    def _controls(self, calls: _Program, rows: Rows) -> list[list[float]] | None:
        """Return the controls of the rows for the calls; None if they cannot say them."""
        found = []
        for place, slot in enumerate(rows.host_slots):
            mine = [call for call in calls if call.places is None or place in call.places]
            line = _line([(call.stage, self._pipeline.values(slot, call)) for call in mine])
            if line is None:
                return None
            found.append(line)
        return found


def _line(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the controls of a row with these stages, in order; None if there are none that mean the same."""
    names, params = [name for name, _ in stages], dict(stages)
    is_known = len(params) == len(stages) and all(getattr(one, "keep", 1) == 1 for one in params.values())
    if not is_known or "temperature" in names[1:-1]:
        return None
    line = [0.0] * len(Control)
    line[Control.TOP_P] = 1.0  # off
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
