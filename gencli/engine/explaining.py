"""Explanations of the tokens that a step chose, for requests with `trace`."""

from __future__ import annotations

from dataclasses import replace

from gencli.engine.slot_state import ProcessorState
from gencli.engine.step_result import StepResult
from processors.explain.kept import KeptLogits
from processors.explain.rows import explain_rows
from processors.explain.view import RowView
from processors.upload import upload_ints

__all__ = ["explained"]


def explained(
    result: StepResult, index: int, tokens: tuple[int, ...], state: ProcessorState
) -> list[RowView]:
    """Explain the tokens of one sequence, before they are committed.

    Token j was chosen in the sequence's row j, which saw the j drafts before it.
    """
    sequence, _ = result.sampled[index]
    request, first = sequence.request, result.first_rows[index]
    places = range(first, first + len(tokens))
    logits = result.logits.index_select(0, upload_ints(places, result.logits.device))
    rows = result.rows.select(places)
    views = explain_rows(
        state.pipeline,
        state.sampler,
        logits,
        rows,
        upload_ints(tokens, result.logits.device),
        [request.draw] * len(tokens),
        count=request.trace or 0,
    )
    if not (keep := request.keep_logits):
        return views
    seeds = [seed % (1 << 64) for seed in rows.seeds.tolist()]
    kept = [KeptLogits.of(row, keep, seed) for row, seed in zip(logits, seeds, strict=True)]
    return [replace(view, kept=one) for view, one in zip(views, kept, strict=True)]
