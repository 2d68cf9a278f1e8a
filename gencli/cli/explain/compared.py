"""Comparisons of two chains as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from gencli.cli.explain.shown import probability, quoted
from gencli.cli.terminal.tables import table
from gencli.config.options.flags import with_flags
from gencli.text.escapes import escape_controls

__all__ = ["comparison_text", "head_text", "summary_text"]

_MOST = 20  # positions in a table
_LONGEST = 200  # characters of a chain
_WHY = {
    "kept": "whose logits do not decide it: too few are kept, or they are not those of A's text",
    "empty": "where B leaves no token",
    "grammar": "behind text that B's grammar does not allow",
}


def head_text(head: Mapping[str, Any]) -> str:
    """Return the chains of both sides, and the seed."""
    sides = [(key.upper(), head[key]) for key in "ab" if head.get(key)]
    lines = [f"{name:<6}{_chain(side['chain'])} ({side['draw']})\n" for name, side in sides]
    return "".join(lines) + (f"seed  {head['seed']}\n" if "seed" in head else "")


def _chain(text: str) -> str:
    shown = escape_controls(text).replace("\n", "\\n") or "no stages"
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def comparison_text(record: Mapping[str, Any]) -> str:
    """Return the page of a prompt: both texts, the positions where B chooses another token, the totals."""
    parts = [f"== {escape_controls(record['id'])}: {quoted(record['prompt'])}\n", *_texts(record)]
    parted = [place for place in record["places"] if place["parted"]]
    if parted:
        parts.append("\n" + table([_HEAD, *map(_row, parted[:_MOST])]))
    if more := parted[_MOST:]:
        parts.append(f"... and {len(more)} more; --format jsonl has all.\n")
    return "".join(parts) + "\n" + summary_text(record["summary"])


def _texts(record: Mapping[str, Any]) -> Iterator[str]:
    a, b, at = record["a"], record["b"], record["parted_at"]
    if b is None or (record["equal"] and not a["error"]):
        yield _lines("A" if b is None else "A, B", a["text"])
        return
    length = len(a["tokens"]) if at is None else at
    shared = "".join(text or "" for _, text in a["tokens"][:length])
    if not (a["text"].startswith(shared) and b["text"].startswith(shared)):
        pairs = zip(a["text"], b["text"], strict=False)  # a stop may have truncated one of them
        shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    yield _lines("both", shared)
    for name, side in (("A", a), ("B", b)):
        yield _lines(
            name, side["text"][len(shared) :], with_flags(side["error"] or "") or side["finish_reason"]
        )
    if at is not None:
        yield f"They part at token {at}: {_at(a, at)} in A, {_at(b, at)} in B.\n"


def _lines(name: str, text: str, end: str = "") -> str:
    shown = escape_controls(text).replace("\n", "\n      ")
    return f"{name:<6}{shown}" + (f" [{escape_controls(end)}]" if end else "") + "\n"


def _at(side: Mapping[str, Any], at: int) -> str:
    return _token(side["tokens"][at]) if at < len(side["tokens"]) else "the end"


def _token(named: list[Any]) -> str:
    token, text = named
    return f"id {token}" if text is None else quoted(text)


_HEAD = ("pos", "A", "B", "TV", "KL A|B", "KL B|A", "decided A", "decided B")


def _row(place: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(place["pos"]), _token(place["a"]), _token(place["b"]), probability(place["tv"]),
        _bits(place["kl_ab"]), _bits(place["kl_ba"]), _names(place["decided_by_a"]),
        _names(place["decided_by_b"]),
    )  # fmt: skip


def _bits(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"


def _names(stages: list[str]) -> str:
    return escape_controls(", ".join(stages)) or "no stage alone"


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return the totals over positions."""
    measured = summary["measured"]
    share = f" ({summary['parted'] / measured:.1%})" if measured else ""
    rows = [("places", f"{summary['places']}, {summary['parted']} parted{share}")]
    if measured:
        rows.append(("TV", f"mean {probability(summary['tv_mean'])}, max {probability(summary['tv_max'])}"))
        rows += [(f"KL {name}", _mean(summary, key)) for name, key in (("A|B", "ab"), ("B|A", "ba"))]
    for name in "ab":
        if decided := summary[f"decided_{name}"]:
            counts = ", ".join(f"{stage} {count}" for stage, count in decided.items())
            rows.append((f"decided {name.upper()}", f"{escape_controls(counts)} of the parted places"))
    rows += [("not measured", f"{count}, {_WHY[why]}") for why, count in summary["unmeasured"].items()]
    return table(rows)


def _mean(summary: Mapping[str, Any], key: str) -> str:
    """Return the mean of a KL divergence over its finite values, and the number of infinite ones."""
    mean, infinite = summary[f"kl_{key}_mean"], summary[f"infinite_{key}"]
    shown = "" if mean is None else f"mean {mean:.3g} bits over {summary['measured'] - infinite} places"
    return ", ".join(filter(None, [shown, f"infinite at {infinite}" if infinite else ""]))
