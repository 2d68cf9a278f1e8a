"""Reasons why no token can be chosen for a row: rerun the row alone and check the logits after each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from processors.base import Processor
from processors.conditions.picks import Key
from processors.errors import EmptySupport, NonFiniteLogits, RowError, StageFailure
from processors.foreign import ForeignStage
from processors.rows import Rows

if TYPE_CHECKING:
    from processors.pipeline import StageCall

__all__ = ["explain_failure"]

_EMPTY = "No token is left to choose from"
_Stage = Callable[[str, int], Processor[Any]]


def explain_failure(
    stage_of: _Stage, calls: Iterable[StageCall], keys: Iterable[Key], logits: Tensor, row: Rows
) -> RowError:
    """Return why a row failed: run `calls` on its logits [1, V], then ask the stages for recorded faults."""
    where = {"slot": row.host_slots[0], "position": int(row.positions[0])}
    work = logits.to(torch.float32, copy=True)
    error = _fault(work, stage="model", **where)
    for call in calls:
        if error is not None:
            break
        work, error = _explained(call.stage, stage_of(*call.key), work, row, where)
    failures = filter(None, (_failure(key[0], stage_of(*key), where) for key in keys))
    unknown = StageFailure("it failed among others and not alone", stage="?", **where)
    return error or next(failures, unknown)


def _explained(
    name: str, stage: Processor[Any], logits: Tensor, row: Rows, where: Mapping[str, int]
) -> tuple[Tensor, RowError | None]:
    """Return the logits after one stage, and the error if the row fails there."""
    after = stage.apply(logits, row)
    error = _fault(after, stage=name, **where)
    if isinstance(error, NonFiniteLogits):
        error = _failure(name, stage, where) or error
    elif error and (reason := stage.failure_reason(row.host_slots[0], row.host_drafts[0])):
        error = EmptySupport(f"{_EMPTY}: {reason}.", stage=name, **where)
    return after, error


def _failure(name: str, stage: Processor[Any], where: Mapping[str, int]) -> StageFailure | None:
    """Return the failure of a plug-in stage in the slot; None if there is none."""
    fault = stage.fault(where["slot"]) if isinstance(stage, ForeignStage) else None
    if fault is None:
        return None
    error = StageFailure(fault.text, stage=name, **where)
    error.__cause__ = fault.cause
    return error


def _fault(logits: Tensor, *, stage: str, slot: int, position: int) -> RowError | None:
    top = float(logits.amax())
    if top == -torch.inf:
        return EmptySupport(
            f"{_EMPTY}: loosen this stage or one before it.",
            stage=stage,
            slot=slot,
            position=position,
        )
    if not top < torch.inf:
        return NonFiniteLogits(
            "NaN or +inf among the logits: the stage, or the model's number format, is at fault.",
            stage=stage,
            slot=slot,
            position=position,
        )
    return None
