"""`DeviceChoice`: the end of a chain and the draw on a GPU, in a few kernels for all rows of a step; the
plans of rows, and the masks, biases and penalties in one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from processors.chain_end import FUSED, Control, controls_of, without_stages
from processors.grammar.grammar_backend import forbid, pack, words
from processors.graphs import Graphs, StaticCopies, copy_to, upload
from processors.kernels.choice import NUM_EDITS, Edit, Listed, Turn
from processors.kernels.choice.choose_rows import Edits, Given, Kind, choose, mark, processed_logits
from processors.pipeline import Calls, Pipeline, Seen, StageCall
from processors.rows import Rows
from processors.sampler import Sampler
from processors.stages.grammar_stage import GrammarStage
from processors.stages.penalties import Bias
from processors.stages.shared import COLDEST, IdStage


class DeviceChoice:
    """Chooses the tokens that `sampler(pipeline(logits, rows), rows)` chooses, on CUDA.

    For each row the last stages of the chain that the kernels support are fused with the draw; the stages
    before them run one by one. The split is made row by row, so a row's result does not depend on other rows.
    With `graphs` the kernels are captured as a CUDA graph for each address and shape of the logits, and
    replayed as one launch.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, graphs: Graphs | None = None) -> None:
        self._pipeline = pipeline
        self._plans = Plans(pipeline, sampler)
        self._graphs, self._static = graphs, StaticCopies()

    def __call__(self, logits: Tensor, rows: Rows, seeds: Tensor | None = None) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative for a failed row, as Sampler.

        `seeds` [R]: seeds of the draw, by default those of the rows.
        """
        plan = self._plans.of(rows)
        inputs, edit_inputs = self._begun(plan, logits, rows, seeds)
        if self._graphs is None or not self._graphs.records or rows.drafts.shape[1]:
            return choose(inputs, plan.kind, edit_inputs)  # drafts give too many shapes to capture
        inputs, edit_inputs = self._held(inputs, edit_inputs)
        tensors = [tensor for tensor in (*inputs, *(edit_inputs or ())) if tensor is not None]
        layouts = tuple(
            (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors
        )
        has = tuple(tensor is not None for tensor in edit_inputs or ())
        key = (plan.kind, has, layouts)
        tokens = self._graphs.run(key, lambda: choose(inputs, plan.kind, edit_inputs))
        assert isinstance(tokens, Tensor)
        return tokens.clone()  # the next replay overwrites the graph's output

    def process(
        self, logits: Tensor, rows: Rows, seen: Seen | None = None, seeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the processed logits [R, V] float32, and the tokens [R] of `__call__`.

        `seen(stage, logits)` is called after each stage, with the logits after it, -inf for masked ids.
        """
        plan = self._plans.of(rows, "effects" if seen else "logits")
        inputs, edit_inputs = self._begun(plan, logits, rows, seeds, seen)
        marked, work = mark(inputs, plan.kind, edit_inputs), inputs.logits
        processed = work.float()
        if any(split.cuts for split in plan.splits) or marked.patches is not None:  # a temperature is a cut
            processed = processed_logits(work, plan.controls, marked.levels, marked.marks, marked.patches)
        if seen and plan.effects:
            for name, controls in plan.effects[:-1]:
                part = mark(inputs._replace(controls=controls), "cut")
                seen(name, processed_logits(work, controls, part.levels, part.marks))
            seen(plan.effects[-1][0], processed)
        tokens = marked.tokens
        if plan.greedy is not None:
            tokens = torch.where(plan.greedy & (tokens >= 0), processed.argmax(1), tokens)
        return processed, tokens

    def _begun(
        self, plan: RowPlan, logits: Tensor, rows: Rows, seeds: Tensor | None, seen: Seen | None = None
    ) -> tuple[Given, Edits | None]:
        head, edits = plan.head, plan.edits
        if edits and (seen or rows.has_forced):  # the kernels know no forced tokens
            head, edits = plan.before, None
        work = self._pipeline.run(head, logits, rows, seen) if head else logits
        inputs = Given(work, plan.controls, rows.seeds if seeds is None else seeds, rows.positions)
        return inputs, edits.inputs(rows) if edits else None

    def _held(self, inputs: Given, edits: Edits | None) -> tuple[Given, Edits | None]:
        """Return the inputs copied to fixed addresses; logits and history already have fixed addresses."""
        new = {name: tensor for name, tensor in inputs._asdict().items() if name != "logits"}
        for name, tensor in edits._asdict().items() if edits else ():
            if tensor is not None and name not in ("tokens", "prompts"):
                new[name] = tensor
        key = tuple((name, tensor.shape, tensor.dtype) for name, tensor in new.items())
        held = dict(zip(new, self._static.hold(key, list(new.values())), strict=True))
        of_choice = {name: tensor for name, tensor in held.items() if name in Given._fields}
        of_edits = {name: tensor for name, tensor in held.items() if name in Edits._fields}
        return inputs._replace(**of_choice), edits._replace(**of_edits) if edits else None


_Stages = Sequence[tuple[str, Any]]  # names and parameters of stages, in order
# What a step returns beside tokens: nothing, the processed logits, or also which ids each stage masks.
Keeps = Literal["tokens", "logits", "effects"]


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """Plan for the rows of some slots: the stages of `head` run first, then the kernels with `controls`.

    `edits`: masks and penalties done in the kernels. `before`: the calls of `head` and the calls that `edits`
    replaces. If logits are kept: `greedy` [R] bool, the greedy rows (None if there is none), and `effects`,
    each fused stage that masks with the controls of the stages up to it.
    """

    splits: tuple[_Split, ...]
    head: Calls
    before: Calls
    edits: DeviceEdits | None
    controls: Tensor
    kind: Kind
    greedy: Tensor | None
    effects: tuple[tuple[str, Tensor], ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """Calls of a row, by index in the program: run as stages (head), as edits, and as cuts of the kernels."""

    head: tuple[int, ...]
    edits: tuple[int, ...]
    cuts: tuple[int, ...]
    change: list[float]
    line: list[float]


class Plans:
    """Plans of the rows of a step, which are kept."""

    def __init__(self, pipeline: Pipeline, sampler: Sampler) -> None:
        self._pipeline, self._sampler = pipeline, sampler

    def of(self, rows: Rows, keeps: Keeps = "tokens") -> RowPlan:
        """Return the plan for the rows' slots; rebuilt when the pipeline's program changes."""
        program, key = self._pipeline.program(rows), (self, keeps)
        if key not in program.plans:
            program.plans[key] = self._plan(program.calls, rows, keeps)
        plan: RowPlan = program.plans[key]
        return plan

    def _plan(self, program: Calls, rows: Rows, keeps: Keeps) -> RowPlan:
        numbers: list[list[int]] = [[] for _ in rows.host_slots]  # of the calls of each row
        for number, call in enumerate(program):
            for row in call.rows(len(rows)):
                numbers[row].append(number)
        keys = [*zip(rows.host_slots, map(tuple, numbers), strict=True)]
        split_of = {key: self._split(program, *key) for key in dict.fromkeys(keys)}
        splits, device = tuple(split_of[key] for key in keys), rows.slots.device
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
        return RowPlan(
            splits=splits,
            head=_calls(program, [split.head for split in splits]),
            before=_calls(program, [split.head + split.edits for split in splits]),
            edits=DeviceEdits.of(calls, changes, self._pipeline, rows) if calls else None,
            controls=upload(lines, device, torch.float64),
            kind=_kind(lines),
            greedy=upload(is_greedy, device) if any(is_greedy) else None,
            effects=self._effects(program, splits, rows) if keeps == "effects" else (),
        )

    def _effects(
        self, program: Calls, splits: Sequence[_Split], rows: Rows
    ) -> tuple[tuple[str, Tensor], ...]:
        """Return for each fused stage that masks the controls of all cuts up to it, in program order."""
        effects = []
        for number in sorted({number for split in splits for number in split.cuts}):
            lines = []
            for slot, split in zip(rows.host_slots, splits, strict=True):
                calls = [program[cut] for cut in split.cuts if cut <= number]
                stages = [(call.stage, self._pipeline.values(slot, call)) for call in calls]
                lines.append(controls_of(stages) or without_stages())
            is_masking = program[number].stage != "temperature" or any(line[Control.GREEDY] for line in lines)
            for line in lines:
                _keep_cuts(line)
            if is_masking:
                effects.append((program[number].stage, upload(lines, rows.slots.device, torch.float64)))
        return tuple(effects)

    def _split(self, program: Calls, slot: int, numbers: tuple[int, ...]) -> _Split:
        """Fuse the longest suffix of a row's calls that controls and edits can express."""
        calls = [program[number] for number in numbers]
        stages = [(call.stage, self._pipeline.values(slot, call)) for call in calls]
        line, first_cut = without_stages(), len(stages)
        while first_cut and (cuts := self._line(FUSED, controls_of, stages[first_cut - 1 :])):
            line, first_cut = cuts, first_cut - 1
        change, first = edit_line(()) or [], first_cut
        while first and (edits := self._line(EDITING, edit_line, stages[first - 1 : first_cut])):
            change, first = edits, first - 1
        return _Split(numbers[:first], numbers[first:first_cut], numbers[first_cut:], change, line)

    def _line(
        self, names: Sequence[str], line_of: Callable[[_Stages], list[float] | None], stages: _Stages
    ) -> list[float] | None:
        return line_of(stages) if self._pipeline.may_fuse(stages[0][0], names) else None


def _calls(program: Calls, chosen: Sequence[Sequence[int]]) -> Calls:
    """Return the calls of a program, each restricted to the rows whose indices in `chosen` [R] include it."""
    rows: list[list[int]] = [[] for _ in program]
    for row, numbers in enumerate(chosen):
        for number in numbers:
            rows[number].append(row)
    calls, looks = list[StageCall](), False
    for call, active in zip(program, rows, strict=True):
        looks |= call.looks_first  # also for a dropped call: the next one may mask faults
        if active:
            places = None if len(active) == len(chosen) else tuple(active)
            calls.append(replace(call, places=places, looks_first=looks))
            looks = False
    return tuple(calls)


def _keep_cuts(line: list[float]) -> None:
    """Keep a row's cuts where its logits are kept; a temperature of 0 becomes top-k with k = 1."""
    if line[Control.GREEDY]:
        line[:] = without_stages()
        line[Control.TOP_K], line[Control.HEAT_DRAW] = 1.0, COLDEST


def _kind(lines: Sequence[Sequence[float]]) -> Kind:
    if all(line[Control.GREEDY] for line in lines):
        return "greedy"
    cuts = any(line[Control.MIN_P] or line[Control.TOP_K] or line[Control.TOP_P] < 1 for line in lines)
    if any(line[Control.INVERSE] for line in lines):
        return "cut-inverse" if cuts else "draw-inverse"
    return "cut" if cuts else "draw"


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
    if (fading := params.get("repetition")) and (fading.slope, fading.sustain) != (1.0, None):
        return None
    line = [0.0] * NUM_EDITS
    line[Edit.SIZE] = params["tail"].size if "tail" in params else _ALL
    line[Edit.EARLY] = params["min_tokens"].count if "min_tokens" in params else 0
    for name, first in _PENALTIES.items():
        if p := params.get(name):
            line[first : first + 3] = [p.penalty, _SCOPES.index(p.scope), p.window or _ALL]
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
            for row in call.rows(len(rows)):
                named.add(row, call.stage, stage)
        lists, values = named.tables() if {"bias", *_LISTS} & {call.stage for call in calls} else (None, None)
        return cls(
            upload(lines, device, torch.float64),
            None if lists is None else copy_to(device, lists),
            None if values is None else copy_to(device, values),
            named.masks,
            None if named.masks is None else copy_to(device, named.masks),
            tuple((call, stage) for call, stage in stages if isinstance(stage, GrammarStage)),
        )

    def inputs(self, rows: Rows) -> Edits:
        """Return the inputs of the kernels for this step."""
        masks, history = self._masks(rows), rows.history
        if self.lists is None:
            return Edits(self.edits, masks)
        texts = history.tokens, history.lengths, history.prompt_lengths, rows.slots, rows.drafts, rows.offsets
        return Edits(self.edits, masks, self.lists, self.values, *texts)

    def _masks(self, rows: Rows) -> Tensor | None:
        """Return the bit masks [R, W] of this step; None if all tokens are allowed."""
        masks: Tensor | None = None
        for call, stage in self.grammars:
            grammar_masks = stage.host_masks(rows if call.places is None else rows.select(call.places))
            if grammar_masks is not None:
                if masks is None:
                    every = torch.full((len(rows), grammar_masks.shape[1]), -1, dtype=grammar_masks.dtype)
                    masks = every if self.masks is None else self.masks.clone()
                masks[list(call.rows(len(rows)))] &= grammar_masks
        return self.fixed_masks if masks is None else copy_to(rows.slots.device, masks)


class _Named:
    """Collects, on the host, the ids that the stages of each row list."""

    def __init__(self, rows: Rows, width: int) -> None:
        self._slots, self._width = rows.host_slots, width
        self._entries: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self._values: list[list[Tensor]] = [[] for _ in rows.host_slots]
        self.masks: Tensor | None = None  # [R, W]

    def add(self, row: int, name: str, stage: Any) -> None:
        slot = self._slots[row]
        if name == "allowed":
            self._mask(row).bitwise_and_(pack(stage.ids.numbers(slot), words(self._width)))
        elif isinstance(stage, Bias):
            self._list(row, stage.ids.numbers(slot), Listed.BIASED, stage.values.numbers(slot))
        elif isinstance(stage, IdStage):
            ids = stage.ids.numbers(slot)
            ids = ids[ids < self._width]  # a tokenizer may have ids without logits
            if _LISTS[name] == Listed.MASKED and len(ids) > _MOST_LISTED:
                forbid(self._mask(row), ids)
            else:
                self._list(row, ids, _LISTS[name], torch.zeros(len(ids), dtype=torch.float64))

    def tables(self) -> tuple[Tensor, Tensor | None]:
        """Return the lists [R, N] and their values [R, N], None if no row has any."""
        lists = _padded(self._entries, torch.int64, -1)
        is_biased = bool(((lists >= 0) & ((lists >> 32 & Listed.BIASED) > 0)).any())
        return lists, _padded(self._values, torch.float64, 0) if is_biased else None

    def _list(self, row: int, ids: Tensor, meaning: Listed, values: Tensor) -> None:
        self._entries[row].append(ids | (int(meaning) << 32))
        self._values[row].append(values)

    def _mask(self, row: int) -> Tensor:
        if self.masks is None:
            self.masks = torch.full((len(self._slots), words(self._width)), -1, dtype=torch.int32)
        return self.masks[row]


def _padded(runs: Sequence[Sequence[Tensor]], dtype: torch.dtype, fill: float) -> Tensor:
    """Return the concatenated runs of each row, padded to [R, N]."""
    rows = [torch.cat([torch.empty(0, dtype=dtype), *parts]) for parts in runs]
    return pad_sequence(rows, batch_first=True, padding_value=fill)
