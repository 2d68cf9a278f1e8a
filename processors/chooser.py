"""The choice of a step's tokens: the fused end of a chain where it applies, else stages and a plain draw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from processors.catalog import Draw
from processors.chain import Key
from processors.chain_end import FUSED, Control, without_stages
from processors.graphs import Graphs, upload
from processors.pipeline import Calls, Pipeline, Seen
from processors.rows import Rows
from processors.sampler import Sampler
from processors.stages.shared import grouped

if TYPE_CHECKING:
    from processors.choose_on_device import DeviceChoice
    from processors.fused import FusedValues


_HAS_NUMPY = find_spec("numpy") is not None


def sampled(sampler: Sampler, logits: Tensor, rows: Rows) -> Tensor:
    """Return `sampler(logits, rows)`; on CUDA in two launches, four if a row draws by inverse CDF."""
    draws = sampler.draws(rows)
    if not logits.is_cuda:
        return sampler(logits, rows)
    from processors.kernels.choice.choose_rows import Given, Kind, choose

    kind: Kind = "greedy" if set(draws) == {"greedy"} else "draw"
    if "multinomial" in draws:
        kind = "draw-inverse"
    seeds, positions = rows.seeds.contiguous(), rows.positions.contiguous()
    return choose(Given(logits, _controls(draws, logits.device), seeds, positions), kind)


@lru_cache(64)
def _controls(draws: tuple[Draw, ...], device: torch.device) -> Tensor:
    """Return controls [R, C] with the draw method of each row and all stages off."""
    lines = [without_stages() for _ in draws]
    for line, draw in zip(lines, draws, strict=True):
        line[Control.GREEDY], line[Control.INVERSE] = float(draw == "greedy"), float(draw == "multinomial")
    return upload(lines, device, torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows of a step whose chains end with the same fused stages; `places` None: all rows.

    `tail`: values of the fused stages. None: `stages` run one after the other, for example at a temperature
    of 0.
    """

    places: tuple[int, ...] | None
    stages: tuple[Key, ...]
    tail: FusedValues | None


_Plan = tuple[Calls, tuple[_Group, ...]]  # the calls before the fused stages, and groups of rows that fuse


class Chooser:
    """Chooses the tokens that `sampler(pipeline(logits, rows), rows)` would choose.

    On a CPU the last stages of a chain are fused with the draw (see `fused`) if they are built-in stages,
    temperature first and top-p last, no stage is traced, every row draws by Gumbel-max, and NumPy is
    installed. On CUDA DeviceChoice chooses.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, graphs: Graphs | None = None) -> None:
        self._pipeline, self._sampler = pipeline, sampler
        self._graphs = graphs

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative for a failed row, as Sampler."""
        pipeline, sampler = self._pipeline, self._sampler
        if logits.is_cuda and not pipeline.is_traced:
            return self._on_device(logits, rows)
        may_fuse = logits.device.type == "cpu" and not pipeline.is_traced
        head, groups = self._planned(rows) if may_fuse else ((), ())
        if not groups:
            return sampler(pipeline(logits, rows), rows)
        work = (pipeline.run(head, logits, rows) if head else logits.float()).contiguous()
        if groups[0].places is None:
            return self._chosen(groups[0], work, rows)
        tokens = torch.empty_like(rows.slots)
        for group in groups:
            at = upload(group.places, work.device)
            tokens[at] = self._chosen(group, work.index_select(0, at), rows.select(group.places or ()))
        return tokens

    def process(
        self,
        logits: Tensor,
        rows: Rows,
        seen: Seen | None = None,
        *,
        reads: bool = True,
        seeds: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the processed logits [R, V] and the tokens [R], for steps that may need both.

        On CUDA, unless traced, the logits are None if the caller does not need them (`reads`). Otherwise the
        tokens are None: the caller samples from the logits. `seen(stage, logits)` is called after each stage.
        `seeds` [R]: seeds of the draw on CUDA, by default those of the rows.
        """
        if not logits.is_cuda or self._pipeline.is_traced:
            return self._pipeline(logits, rows, seen), None
        if not reads:
            return None, self._on_device(logits, rows, seeds)
        return self._on_device.process(logits, rows, seen, seeds)

    @cached_property
    def _on_device(self) -> DeviceChoice:
        from processors.choose_on_device import DeviceChoice

        return DeviceChoice(self._pipeline, self._sampler, self._graphs)

    def _chosen(self, group: _Group, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [A] for the logits [A, V] before the group's stages."""
        if group.tail is None:
            return self._stepwise(group, logits, rows)
        from processors.fused import choose_fused

        choice = choose_fused(logits, group.tail, rows)
        tokens, at = torch.from_numpy(choice.tokens), choice.uncertain
        if len(at):
            tokens[at] = self._stepwise(group, logits[at], rows.select(at.tolist()))
        return tokens

    def _stepwise(self, group: _Group, logits: Tensor, rows: Rows) -> Tensor:
        """Return the tokens [A] by the group's stages, one by one, and the sampler. May edit the logits."""
        for key in group.stages:
            logits = self._pipeline.stage(*key).apply(logits, rows)
        return self._sampler(logits, rows)

    def _planned(self, rows: Rows) -> _Plan:
        program, key = self._pipeline.program(rows), (self, self._sampler.version)
        if key not in program.plans:
            program.plans[key] = self._split(program.calls, rows)
        plan: _Plan = program.plans[key]
        return plan

    def _split(self, program: Calls, rows: Rows) -> _Plan:
        """Split a program into the calls before the fused stages, and groups of rows that fuse the others."""
        if not _HAS_NUMPY or set(self._sampler.draws(rows)) != {"gumbel"}:
            return program, ()
        from processors.fused import FusedValues

        pipeline, first = self._pipeline, len(program)
        while first and pipeline.may_fuse(program[first - 1].stage, FUSED):
            first -= 1
        stages: dict[int, tuple[Key, ...]] = dict.fromkeys(range(len(rows)), ())
        for call in program[first:]:
            for row in call.rows(len(rows)):
                stages[row] += (call.key,)
        kinds, groups, calls = grouped(stages.values()), [], {call.key: call for call in program[first:]}
        for keys, places in kinds.items():
            slots = [rows.host_slots[row] for row in places]
            tail = FusedValues.of(
                [[(key[0], pipeline.values(slot, calls[key])) for key in keys] for slot in slots]
            )
            is_left = len(kinds) > 1 and [name for name, _ in keys] == ["temperature"]
            if tail is None and not is_left:
                return program, ()
            groups.append(_Group(None if len(kinds) == 1 else tuple(places), keys, tail))
        return program[:first], tuple(groups)
