"""Explanations of chosen tokens, for requests with `trace`."""

from __future__ import annotations

from dataclasses import replace

from gencli.engine.sequence import Sequence
from gencli.engine.slot_state import ProcessorState
from gencli.engine.step import Step, StepHook
from processors.explain_rows import KeptLogits, explain_rows
from processors.graphs import upload_ints
from processors.row_view import RowView


class Explanations(StepHook):
    """Explains the tokens of a step, before they are committed."""

    def __init__(self, state: ProcessorState) -> None:
        super().__init__()
        self._state = state

    def wants(self, sequence: Sequence) -> bool:
        return sequence.request.trace is not None

    def on_taken(self, step: Step) -> None:
        for index, ((sequence, _), result) in enumerate(zip(step.sampled, step.taken, strict=True)):
            if sequence.request.trace is not None and result is not None and result[0].ids:
                sequence.explain(explained(step, index, result[0].ids, self._state))


def explained(step: Step, index: int, tokens: tuple[int, ...], state: ProcessorState) -> list[RowView]:
    """Explain the tokens of one sequence, before they are committed.

    Token j was chosen in the sequence's row j, which saw the j drafts before it.
    """
    sequence, _ = step.sampled[index]
    request, first = sequence.request, step.first_rows[index]
    indices = range(first, first + len(tokens))
    logits = step.logits.index_select(0, upload_ints(indices, step.logits.device))
    rows = step.rows.select(indices)
    views = explain_rows(
        state.pipeline,
        state.sampler,
        logits,
        rows,
        upload_ints(tokens, step.logits.device),
        [request.draw] * len(tokens),
        count=request.trace or 0,
    )
    if not (keep := request.keep_logits):
        return views
    seeds = [seed % (1 << 64) for seed in rows.seeds.tolist()]
    kept = [KeptLogits.of(row, keep, seed) for row, seed in zip(logits, seeds, strict=True)]
    return [replace(view, kept=logits) for view, logits in zip(views, kept, strict=True)]
