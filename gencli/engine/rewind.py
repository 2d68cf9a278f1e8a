"""Tokens that a ban with `rewind` may take back: drafts of the next step, until they are certain."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from functools import partial
from typing import Any, cast

from gencli.core.request import Request
from gencli.engine.sequence import Sequence
from gencli.engine.step import Append, Step, StepHook
from gencli.errors import UsageError
from gencli.models.model_runner import ModelSpec
from processors.base import GrammarStatus, Processor, Settled
from processors.pipeline import Pipeline
from processors.stages.masks import BanParams


class Rewind(StepHook):
    """Holds tokens that may be taken back; they are not output yet."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._pipeline = pipeline

    def wants(self, sequence: Sequence) -> bool:
        return can_rewind(sequence.request)

    def propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        return {s.slot: s.held for s in sequences if s.held and not s.known}

    def take(self, step: Step, append: Append) -> None:
        for index, (sequence, _) in enumerate(step.sampled):
            stage = self._pipeline.withholding.get(sequence.slot)
            if stage and sequence.group is None and not sequence.is_in_prefix:
                step.taken[index] = append(step, index, partial(settle, stage))


def can_rewind(request: Request) -> bool:
    """Whether the request bans texts with `rewind`, and its tokens are drawn."""
    ban = cast(BanParams | None, request.chain.get("ban"))
    return ban is not None and ban.rewind and not ban.is_off() and request.given is None


def check_rewind(request: Request, spec: ModelSpec, pipeline: Pipeline) -> None:
    """Raise UsageError if the request bans texts with `rewind` and model or chain cannot take tokens back."""
    if not can_rewind(request):
        return
    names = [name for name, _ in request.chain.active()]
    stepwise = next((name for name in names if pipeline.runs_stepwise(name)), "")
    reasons = {
        "`beams`": request.beams is not None,
        "`contrastive_alpha`": request.contrastive is not None,
        f"`verify` = {request.verification.policy}": request.drafts_decide,
        f"{spec.name}, whose layers keep a running state": not spec.can_rollback,
        f"{spec.name}, whose rotary factors depend on the length": bool(spec.rope_switches),
        f"the stage {stepwise}, which needs the token before": bool(stepwise),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        raise UsageError(
            f"A ban with rewind and {reason} do not go together: the output cannot go back.",
            hint="Leave `ban_rewind` out: then the texts are masked before they are complete.",
        )


def settle(
    stage: Processor[Any],
    sequence: Sequence,
    tokens: Tokens[int],
    followed: Tokens[GrammarStatus],
    now: float,
) -> tuple[Tokens[int], bool]:
    """Return the certain tokens, and whether no token was taken back. The sequence holds the other tokens."""
    if not stage.may_hold(sequence.slot, tokens):
        sequence.hold(())
        return tokens, True
    copy = sequence.fork()  # whether the text would end with one of these tokens
    taken, error = copy.take(tokens, followed, now=now)
    is_final = error is not None or copy.finish is not None or bool(copy.cut)
    tokens = tokens[: len(taken.ids)] if is_final else tokens
    settled: Settled = stage.settle(sequence.slot, tokens, is_final=is_final)
    sequence.hold(tuple(tokens[settled.certain : settled.certain + settled.held]))
    return tokens[: settled.certain], settled.is_whole
