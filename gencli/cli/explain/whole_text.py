"""A whole text: its tokens marked by probability, what each stage did, and the most surprising tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum

from gencli.cli.explain.levels import facts_of, legend, level_of, marked
from gencli.cli.explain.shown import quoted
from gencli.cli.terminal.tables import table
from gencli.explain.record import Record
from gencli.text.escapes import escape_controls

__all__ = ["whole_text"]


def whole_text(records: Sequence[Record]) -> str:
    """Return the page of a text. Bits are -log2 of the probability under the model."""
    if not records:
        return "No tokens.\n"
    bits = [record["surprise"] for record in records if record["surprise"] is not None]
    head = f"{len(records)} tokens   {fsum(bits):.1f} bits, {fsum(bits) / len(records):.2f} a token\n"
    return "\n".join(
        [
            head + _marked(records),
            legend("probability"),
            table(_stages(records)) + _causes(records),
            _next(records),
        ]
    )


def _marked(records: Sequence[Record]) -> str:
    """Return the text with the marks of LEVELS."""
    found = ((record["text"], level_of("probability", facts_of(record))) for record in records)
    return "".join(marked(escape_controls(text), number) for text, number in found) + "\n"


def _stages(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each stage: how often it acted and decided, mass removed, change of entropy."""
    yield "stage", "acted", "decided", "mass removed", "entropy", "example"
    names = dict.fromkeys(stage["name"] for record in records for stage in record["stages"])
    for name in names:
        acted, lost, turned = 0, list[float](), list[float]()
        for record in records:
            before = record["raw"]["entropy"]
            for stage in record["stages"]:
                if stage["name"] == name:
                    acted += stage["acted"]
                    lost.append(1 - stage["mass_kept"])
                    turned.append(stage["entropy"] - before)
                before = stage["entropy"]
        decided = [record for record in records if name in record["decided_by"]]
        yield (
            name, f"{acted}/{len(records)}", str(len(decided)), f"{fsum(lost) / len(lost):.3f}",
            f"{fsum(turned) / len(turned):+.2f}", _example(decided),
        )  # fmt: skip


def _example(decided: Sequence[Record]) -> str:
    if not decided:
        return ""
    first = decided[0]
    instead = first["forgone"]
    shown = f"{first['pos']} {quoted(first['text'])}"
    return shown if instead is None else f"{shown} for {quoted(instead['text'])}"


def _causes(records: Sequence[Record]) -> str:
    by_stage = sum(bool(record["decided_by"]) for record in records)
    forced = sum(record["final"]["alive"] == 1 for record in records)
    others = len(records) - by_stage
    return f"decided by a stage {by_stage}, by model and noise {others}, one token left {forced}\n"


def _next(records: Sequence[Record]) -> str:
    ranked = sorted(records, key=lambda record: -(record["surprise"] or 1e9))[:3]
    shown = ", ".join(f"{one['pos']} {quoted(one['text'])} {one['surprise'] or 0:.1f} bits" for one in ranked)
    return f"most surprising: {shown}\n"
