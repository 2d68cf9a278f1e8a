"""Assembles one HTML file from the files of this package: markup, style, scripts of a kind, and data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["assemble", "named", "part", "short"]

_STYLES = ("colors.css", "style.css", "tokens.css", "views.css")
_SCRIPTS = {
    "texts": ("base.js", "tokens.js", "lanes.js", "panel.js", "texts.js"),
    "compare": ("base.js", "tokens.js", "compare.js"),
    "sweep": ("base.js", "sweep.js"),
    "tree": ("base.js", "tree.js"),
}
_TITLES = {"texts": "explain", "tree": "fork"}
_DIGITS = 6  # significant digits of a number


def assemble(kind: str, data: Mapping[str, Any]) -> str:
    """Return the file. Texts are data in it, never markup or code."""
    style, script = ("\n".join(map(part, names)) for names in (_STYLES, _SCRIPTS[kind]))
    written = json.dumps({"kind": kind, **data}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "KIND": kind,
        "TITLE": _TITLES.get(kind, kind),
        "POLICY": _policy(script, style),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": _packed(written),
    }
    return re.sub("%([A-Z]+)%", lambda found: parts[found[1]], part("index.html"))


def short(value: Any) -> Any:
    """Return a number with six significant digits, null if it is not finite; other values unchanged."""
    if not isinstance(value, float):
        return value
    if value != value or abs(value) == float("inf"):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def named(entries: Iterable[Sequence[Any]], names: dict[int, str]) -> list[Any]:
    """Return the entries [id, text, number ...] as a flat list without texts, which are added to `names`."""
    flat: list[Any] = []
    for token, text, *numbers in entries:
        names[token] = text
        flat += [token, *map(short, numbers)]
    return flat


def part(name: str) -> str:
    """Return a file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Return a policy under which only the page's own script and style run, and nothing is fetched."""
    own = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(text: str) -> str:
    """Return the text compressed, in base64; lone surrogates become "?", because UTF-8 cannot encode them."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()
