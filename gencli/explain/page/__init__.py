"""Traced texts as one HTML file: no network, no framework, the records inside it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gencli.explain.record import Record
from gencli.explain.trace_file import TracedText

__all__ = ["page"]

_DIGITS = 3  # significant ones of a number


def page(texts: Sequence[TracedText]) -> str:
    """Return the file. Texts of tokens are data in it: nothing of them is markup or code."""
    template = Path(__file__).with_name("index.html").read_text(encoding="utf-8")
    names: dict[int, str] = {}
    data = {"texts": [_text(text, names) for text in texts], "names": names}
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("%POLICY%", _policy(template)).replace("%DATA%", written)


def _policy(template: str) -> str:
    """Return a policy: nothing but the page's own script and style runs, and nothing is fetched."""
    script, style = (_hash(template, tag) for tag in ("script", "style"))
    own = f"script-src '{script}'; style-src '{style}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(text: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert found is not None
    return f"sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}"


def _text(text: TracedText, names: dict[int, str]) -> dict[str, Any]:
    """Return a text in the short form that the page's script describes, and add the texts of its ids."""
    stages: dict[tuple[str, str], int] = {}
    for record in text.records:
        for stage in record["stages"]:
            stages.setdefault((stage["name"], stage["params"]), len(stages))
    request, sample = text.key
    return {
        "title": f"{request}, sample {sample}",
        "prompt": str(text.head.get("prompt", "")),
        "stages": [list(key) for key in stages],
        "tokens": [_token(record, stages, names) for record in text.records],
    }


def _token(record: Record, stages: dict[tuple[str, str], int], names: dict[int, str]) -> list[Any]:
    names[record["id"]] = record["text"]
    known = [stage["name"] for stage in record["stages"]]
    draw, forgone = record["draw"], record["forgone"]
    if draw["runner_up"] is not None:
        names[draw["runner_up"][0]] = draw["runner_up"][1]
    if forgone is not None:
        names[forgone["id"]] = forgone["text"]
    before, rows = record["raw"], []
    for stage in record["stages"]:
        place = _place({**stage, "alive": stage["alive"][1]}, names)
        removed = _pairs(stage["removed"], names)
        changed = [_short(item) for entry in stage["changed"] for item in _named(entry, names)]
        is_same = place == _place(before, names)
        number = stages[stage["name"], stage["params"]]
        facts = [number, int(stage["acted"]), _short(stage["mass_kept"])]
        rows.append([*facts, 0 if is_same else place, removed, changed, stage["note"]])
        before = {**stage, "alive": stage["alive"][1]}
    return [
        record["id"],
        _short(record["surprise"]),
        _place(record["raw"], names),
        rows,
        [draw["kind"], _short(draw["margin"]), None if draw["runner_up"] is None else draw["runner_up"][0]],
        [known.index(name) for name in record["decided_by"] if name in known],
        0 if forgone is None else [forgone["id"], _short(forgone["p"]), known.index(forgone["removed_by"])],
    ]


def _place(place: Record, names: dict[int, str]) -> list[Any]:
    numbers = [place["p"], place["rank"], place["entropy"], place["alive"], place["others"]]
    return [*map(_short, numbers), _pairs(place["top"], names)]


def _pairs(entries: Iterable[Sequence[Any]], names: dict[int, str]) -> list[Any]:
    return [_short(item) for entry in entries for item in _named(entry, names)]


def _named(entry: Sequence[Any], names: dict[int, str]) -> tuple[Any, ...]:
    """Return an entry without its text, which is kept by its id."""
    token, text, *rest = entry
    names[token] = text
    return token, *rest


def _short(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
