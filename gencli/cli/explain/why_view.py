"""Why a named token was not chosen: as text and as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gencli.cli.explain.one_token import stage_rows
from gencli.cli.explain.shown import probability, quoted, rank, text_before
from gencli.cli.terminal.tables import table

__all__ = ["why_page", "why_table"]

_MOST = 20  # positions in a table

_WhyRecord = Mapping[str, Any]  # a record of the named token, extended by the fields of a Sight


def why_table(records: Sequence[_WhyRecord]) -> str:
    """Return a line for each position of a text; for a long text only where the token was most likely."""
    named = quoted(records[0]["text"]) if records else ""
    best = sorted(records, key=lambda one: -(one["raw"]["p"] or 0))[:_MOST]
    shown = sorted(best, key=lambda one: one["pos"])
    cut = (
        "" if len(shown) == len(records) else f", the {_MOST} of {len(records)} places where it was likeliest"
    )
    return f"{named} (id {records[0]['id']}){cut}\n" + table(_lines(shown))


def _lines(records: Sequence[_WhyRecord]) -> Iterator[tuple[str, ...]]:
    yield "at", "chosen", "raw", "final", "why not", "it would have come"
    for one in records:
        yield (
            str(one["pos"]),
            quoted(one["chosen"][1]),
            _place(one, "raw"),
            _place(one, "final"),
            _reason(one),
            f"without {' or '.join(one['wins_without'])}" if one["wins_without"] else "",
        )


def _place(one: _WhyRecord, key: str) -> str:
    if one["bound"] is not None:
        return f"beyond #{one['kept']}"
    return f"{rank(one[key]['rank'])} {probability(one[key]['p'])}"


def _reason(one: _WhyRecord) -> str:
    if one["bound"] is not None:
        return f"not kept: its logit is at most {one['bound']:.2f}"
    if one["chosen"][0] == one["id"]:
        return "it was chosen"
    doubt = "" if one["exact"] else ", by the kept logits"
    if one["removed_by"]:
        return f"removed by {one['removed_by']}{doubt}"
    margin = one["draw"]["margin"]
    return ("behind in the draw" if margin is None else f"behind in the draw by {-margin:.2f}") + doubt


def why_page(one: _WhyRecord, before: str, count: int) -> str:
    """Return the named token's path through the chain at one position."""
    named, chosen = f"{quoted(one['text'])} (id {one['id']})", quoted(one["chosen"][1])
    head = f"token {one['pos']} of {count}   {chosen} was chosen; why not {named}?\n"
    wins = " or ".join(one["wins_without"])
    last = f"{_reason(one)}" + (f"; without {wins} it would have come" if wins else "")
    return f"{head}{text_before(before)}{table(list(stage_rows(one))[:-1])}{last}\n"
