"""Tokens that may be taken back: they are held after the output, and are drafts of the next step.

A held token is chosen again in each step until it is certain, with the same noise, so it stays the same
unless its stage forbids it. KV lanes, stages and grammar are rolled back as after rejected drafts. The text
contains a held token only once it is certain. The stage decides (Processor.settle); the sequence owns the
held tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Any, cast

from gencli.core.request import Request
from gencli.engine.sequence import Sequence
from gencli.errors import UsageError
from gencli.models.model_runner import ModelSpec
from processors.base import GrammarStatus, Processor, Settled
from processors.catalog import BanParams
from processors.pipeline import Pipeline

__all__ = ["can_rewind", "check_rewind", "held_drafts", "settle"]


def can_rewind(request: Request) -> bool:
    """Whether the request bans texts with `rewind`, and its tokens are drawn."""
    ban = cast(BanParams | None, request.chain.get("ban"))
    return ban is not None and ban.rewind and not ban.is_off() and request.given is None


def check_rewind(request: Request, spec: ModelSpec, pipeline: Pipeline) -> None:
    """Raise UsageError if the request bans texts with `rewind` and model or chain cannot take tokens back."""
    if not can_rewind(request):
        return
    names = [name for name, _ in request.chain.active()]
    held = next((name for name in names if pipeline.runs_stepwise(name)), "")
    reasons = {
        "`beams`": request.beams is not None,
        "`contrastive_alpha`": request.contrastive is not None,
        f"`verify` = {request.verification.policy}": request.drafts_decide,
        f"{spec.name}, whose layers keep a running state": not spec.can_rollback,
        f"{spec.name}, whose rotary factors depend on the length": bool(spec.rope_switches),
        f"the stage {held}, which needs the token before": bool(held),
    }
    if found := next((what for what, is_so in reasons.items() if is_so), ""):
        raise UsageError(
            f"A ban with rewind and {found} do not go together: the output cannot go back.",
            hint="Leave `ban_rewind` out: then the texts are masked before they are complete.",
        )


def held_drafts(sequences: Tokens[Sequence]) -> dict[int, tuple[int, ...]]:
    """Return by slot the held tokens of the sequences that have any."""
    return {sequence.slot: sequence.held for sequence in sequences if sequence.held}


def settle(
    sequence: Sequence,
    tokens: Tokens[int],
    followed: Tokens[GrammarStatus],
    stage: Processor[Any],
    now: float,
) -> tuple[Tokens[int], bool]:
    """Return the certain tokens, and whether no token was taken back. The sequence holds the other tokens."""
    if not stage.may_hold(sequence.slot, tokens):
        sequence.hold(())
        return tokens, True
    count = _length_at_end(sequence, tokens, followed, now)
    tokens = tokens if count is None else tokens[:count]
    found: Settled = stage.settle(sequence.slot, tokens, is_final=count is not None)
    sequence.hold(tuple(tokens[found.certain : found.certain + found.held]))
    return tokens[: found.certain], found.is_whole


def _length_at_end(
    sequence: Sequence, tokens: Tokens[int], followed: Tokens[GrammarStatus], now: float
) -> int | None:
    """Return after how many of these tokens the text would end; None if it would continue."""
    copy = sequence.fork()
    taken, error = copy.take(tokens, followed, now=now)
    is_over = error is not None or copy.finish is not None or bool(copy.cut)
    return len(taken.ids) if is_over else None
