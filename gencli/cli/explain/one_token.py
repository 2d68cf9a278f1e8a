"""One token's path through the chain, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gencli.cli.explain.shown import escaped, probability, quoted, rank, text_before
from gencli.cli.terminal.tables import table
from gencli.explain.record import Record

__all__ = ["decision", "headline", "one_token", "stage_rows"]


def one_token(record: Record, *, before: str = "", of: int | None = None) -> str:
    """Return the page of a token: its facts, a line for each stage, the deciding stages.

    `before`: the text so far. `of`: the number of tokens.
    """
    return f"{headline(record, of)}\n{text_before(before)}{table(stage_rows(record))}{decision(record)}"


def headline(record: Record, of: int | None = None) -> str:
    """Return the facts of a token in a line; `of` is the number of tokens."""
    place = f"token {record['pos']}" + (f" of {of}" if of is not None else "")
    raw, final = record["raw"], record["final"]
    facts = [
        place,
        quoted(record["text"]),
        f"id {record['id']}",
        f"raw {rank(raw['rank'])} p {probability(raw['p'])}",
        f"final {rank(final['rank'])} p {probability(final['p'])}",
        f"surprise {record['surprise']:.2f} bits" if record["surprise"] is not None else "surprise infinite",
    ]
    return "   ".join(facts)


def stage_rows(record: Record) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a token's table: the header, the model, each stage, the draw."""
    token = quoted(record["text"])
    yield "stage", "set", "alive", "kept", "top", token, "largest removed or moved"
    raw = record["raw"]
    yield "raw", "-", str(raw["alive"]), "", _top(raw), _own(raw), ""
    for stage in record["stages"]:
        yield (
            stage["name"],
            _values(stage),
            str(stage["alive"][1]),
            "-" if stage["mass_kept"] is None else f"{stage['mass_kept']:.3f}",
            _top(stage),
            _own(stage),
            _done(stage),
        )
    yield _drawn(record)


def _drawn(record: Record) -> tuple[str, ...]:
    """Return the row of the draw."""
    draw = record["draw"]
    margin = draw["margin"]
    word = "" if margin is None else " behind by" if margin >= 0 else " ahead by"
    behind = "" if margin is None else f"{word} {abs(margin):.2f}"
    runner = "" if draw["runner_up"] is None else f"runner-up {quoted(draw['runner_up'][1])}{behind}"
    return "draw", draw["kind"], "", "", "", "drawn", runner


def _values(stage: dict[str, Any]) -> str:
    """Return the values of a stage without its name."""
    text = str(stage["params"]).removeprefix(stage["name"]).lstrip("=:")
    return text if len(text) <= 24 else text[:21] + "..."


def _top(place: dict[str, Any]) -> str:
    if not place["top"]:
        return "-"
    _, text, p = place["top"][0]
    return f"{quoted(text)} {probability(p)}"


def _own(place: dict[str, Any]) -> str:
    return f"{probability(place['p'])} {rank(place['rank'])}"


def _done(stage: dict[str, Any]) -> str:
    """Return the effect of a stage, in a few words."""
    if not stage["acted"]:
        said = ", ".join(filter(None, (stage["note"], stage.get("why_not"))))
        return escaped(said) or "changed nothing"
    changes, note = _changes(stage), escaped(stage["note"])
    return f"{changes} ({note})" if changes and note else changes or note


def _changes(stage: dict[str, Any]) -> str:
    """Return the largest change by a stage: ids that it removed, or logits that it moved."""
    if stage["removed"]:
        count = stage["alive"][0] - stage["alive"][1]
        shown = " ".join(f"{quoted(text)} {probability(p)}" for _, text, p in stage["removed"][:3])
        return shown if count <= 3 else f"{count} tokens, largest {shown}"
    if stage["changed"]:
        _, text, before, after = stage["changed"][0]
        return f"{quoted(text)} {before:.2f} -> {after:.2f}"
    return ""


def decision(record: Record) -> str:
    """Return the last line: the deciding stages, and the token that would come without truncation."""
    others = record.get("instead", [None] * len(record["decided_by"]))  # missing in older traces
    pairs = zip(record["decided_by"], others, strict=True)
    stages = (name if other is None else f"{name} (without it {quoted(other[1])})" for name, other in pairs)
    decided = ", ".join(stages) or "the noise of the draw, or the model: no stage alone"
    forgone = record["forgone"]
    lost = "" if forgone is None else (
        f"   forgone {quoted(forgone['text'])} (raw p {probability(forgone['p'])}), removed by "
        f"{forgone['removed_by']}"
    )  # fmt: skip
    return f"decided by {decided}{lost}\n"
