"""`DeviceChoice`: the end of a chain and the draw on a GPU, in a few kernels for all rows of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.graphs import Graphs
from processors.kernels.choice.processed import processed_logits
from processors.kernels.choice.run import Edits, Given, Kind, choose, mark
from processors.pipeline import Pipeline, Seen
from processors.plan_on_device import Plans
from processors.rows import Rows
from processors.sampler import Sampler
from processors.static_inputs import StaticInputs

__all__ = ["DeviceChoice"]


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
        self._graphs, self._static = graphs, StaticInputs()

    def __call__(self, logits: Tensor, rows: Rows, seeds: Tensor | None = None) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative for a failed row, as Sampler.

        `seeds` [R]: seeds of the draw, by default those of the rows.
        """
        plan = self._plans.of(rows)
        head, edits = plan.head, plan.edits
        if edits and not edits.apply_to(rows):
            head, edits = plan.before, None
        work = self._pipeline.run(head, logits, rows) if head else logits
        given = Given(work, plan.controls, rows.seeds if seeds is None else seeds, rows.positions)
        known = edits.given(rows) if edits else None
        if self._graphs is None or not self._graphs.records or rows.drafts.shape[1]:
            return choose(given, plan.kind, known)  # drafts give too many shapes to capture
        return self._replayed(self._graphs, given, plan.kind, known)

    def process(
        self, logits: Tensor, rows: Rows, seen: Seen | None = None, seeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the processed logits [R, V] float32, and the tokens [R] of `__call__`.

        `seen(stage, logits)` is called after each stage, with the logits after it, -inf for masked ids.
        """
        plan = self._plans.of(rows, "effects" if seen else "logits")
        head, edits = plan.head, plan.edits
        if edits and (seen or not edits.apply_to(rows)):
            head, edits = plan.before, None
        work = self._pipeline.run(head, logits, rows, seen) if head else logits
        given = Given(work, plan.controls, rows.seeds if seeds is None else seeds, rows.positions)
        marked = mark(given, plan.kind, edits.given(rows) if edits else None)
        found = work.float()
        if plan.changes_logits or marked.patches is not None:
            found = processed_logits(work, plan.controls, marked.levels, marked.marks, marked.patches)
        if seen and plan.effects:
            for name, controls in plan.effects[:-1]:
                part = mark(given._replace(controls=controls), "cut")
                seen(name, processed_logits(work, controls, part.levels, part.marks))
            seen(plan.effects[-1][0], found)
        tokens = marked.tokens
        if plan.greedy is not None:
            tokens = torch.where(plan.greedy & (tokens >= 0), found.argmax(1), tokens)
        return found, tokens

    def _replayed(self, graphs: Graphs, given: Given, kind: Kind, edits: Edits | None) -> Tensor:
        """Return the tokens, replayed from a graph captured for these shapes and addresses."""
        given, edits = self._held(given, edits)
        tensors = [one for one in (*given, *(edits or ())) if one is not None]
        places = tuple((one.data_ptr(), one.shape, one.stride(), one.dtype) for one in tensors)
        has = tuple(one is not None for one in edits or ())
        found = graphs.run((kind, has, places), lambda: choose(given, kind, edits))
        assert isinstance(found, Tensor)
        return found.clone()  # the next replay overwrites the graph's output

    def _held(self, given: Given, edits: Edits | None) -> tuple[Given, Edits | None]:
        """Return the inputs copied to fixed addresses; logits and history already have fixed addresses."""
        new = {name: one for name, one in given._asdict().items() if name != "logits"}
        for name, one in edits._asdict().items() if edits else ():
            if one is not None and name not in ("tokens", "prompts"):
                new[name] = one
        key = tuple((name, one.shape, one.dtype) for name, one in new.items())
        held = dict(zip(new, self._static.hold(key, list(new.values())), strict=True))
        mine = {name: one for name, one in held.items() if name in Given._fields}
        others = {name: one for name, one in held.items() if name in Edits._fields}
        return given._replace(**mine), edits._replace(**others) if edits else None
