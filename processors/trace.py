"""Records the effect of each stage in a step. Tracing replaces `Pipeline._run`; it costs nothing when off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows

__all__ = ["StageRecord", "trace"]


@dataclass(frozen=True, slots=True, eq=False)
class StageRecord:
    """Effect of one stage in one step, for the A rows where it was on.

    places: indices of these rows in the step. survivors_before/after [A]: number of unmasked ids.
    top_before/after [A]: the most likely id. mass_kept [A]: probability, before the stage, of the ids that
    the stage kept.
    """

    stage: str
    places: tuple[int, ...]
    survivors_before: Tensor
    survivors_after: Tensor
    top_before: Tensor
    top_after: Tensor
    mass_kept: Tensor


def trace(pipeline: Pipeline) -> tuple[list[StageRecord], Callable[[], None]]:
    """Record every stage call from now on. Return the growing list of records, and a function that stops."""
    records: list[StageRecord] = []
    plain = pipeline._run

    def traced(call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        before = logits.clone()
        after = plain(call, logits, rows)
        places = call.places or tuple(range(len(rows)))
        records.append(_record(call.stage, places, before[list(places)], after[list(places)]))
        return after

    setattr(pipeline, "_run", traced)  # noqa: B010 - an instance attribute over the method, on purpose
    return records, lambda: delattr(pipeline, "_run")


def _record(stage: str, places: tuple[int, ...], before: Tensor, after: Tensor) -> StageRecord:
    kept = after > -torch.inf
    return StageRecord(
        stage=stage,
        places=places,
        survivors_before=(before > -torch.inf).sum(-1),
        survivors_after=kept.sum(-1),
        top_before=before.argmax(-1),
        top_after=after.argmax(-1),
        mass_kept=torch.where(kept, before.softmax(-1), 0).sum(-1),
    )
