"""Statistics of speculative decoding, as a record and as lines of text with advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

from gencli.core.events import Drafted, Finish

__all__ = ["draft_lines", "draft_record"]

_SHOWN = 8  # draft positions shown in a line
_LOSS = 0.97  # a speed-up below this is reported as a loss


def draft_record(finish: Finish | None, drafter: str) -> dict[str, Any] | None:
    """Return a sample's draft record, as in docs/run-output.schema.json; None without drafting."""
    if finish is None or finish.drafted is None:
        return None
    drafted = finish.drafted
    return {
        "drafter": drafter,
        "forwards": drafted.forwards,
        "tokens_per_forward": _rounded(finish.completion_tokens, drafted.forwards),
        "proposed": list(drafted.proposed),
        "accepted": list(drafted.accepted),
        "draft_seconds": round(drafted.draft_seconds, 6),
        "verify_seconds": round(drafted.verify_seconds, 6),
        "speedup": None if drafted.speedup is None else round(drafted.speedup, 3),
        "held_by": drafted.held or None,
    }


def draft_lines(finishes: Sequence[Finish], drafter: str) -> Iterator[str]:
    """Yield the totals of all samples, and advice if drafting was slower."""
    drafting = [finish for finish in finishes if finish.drafted is not None]
    if not drafting:
        return
    total = reduce(add, (finish.drafted for finish in drafting if finish.drafted), Drafted())
    tokens = sum(finish.completion_tokens for finish in drafting)
    proposed, accepted = sum(total.proposed), sum(total.accepted)
    if not proposed:
        yield f"Drafts ({drafter}): none were made."
    else:
        rates = [f"{a / p:.0%}" for a, p in zip(total.accepted, total.proposed, strict=True)][:_SHOWN]
        yield (
            f"Drafts ({drafter}): {accepted} of {proposed} accepted ({', '.join(rates)} by position), "
            f"{_rounded(tokens, total.forwards):.2f} tokens a forward, drafting {total.draft_seconds:.2f} s, "
            f"the rest {total.verify_seconds:.2f} s{_measured(total)}."
        )
    if total.held:
        yield f"The stage {total.held} needs each token before the next, so its texts took no drafts."
    if proposed and _is_loss(total, tokens):
        yield "Drafting took longer than the forwards that it saved: leave out `draft`, or name another."


def _measured(total: Drafted) -> str:
    """Return the speed-up over plain steps of the same run; "" if too few were timed."""
    return "" if total.speedup is None else f", {total.speedup:.2f} times plain steps ({total.plain} timed)"


def _is_loss(total: Drafted, tokens: int) -> bool:
    """Return whether drafting was slower than plain steps, estimated if too few of those were timed."""
    if total.speedup is not None:
        return total.speedup < _LOSS
    return tokens / total.forwards * total.verify_seconds < total.draft_seconds + total.verify_seconds


def _rounded(tokens: int, forwards: int) -> float | None:
    return round(tokens / forwards, 3) if forwards else None
