"""Write standard JSON in any text encoding."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

__all__ = ["as_float", "to_json"]


def to_json(value: Any, *, encoding: str = "utf-8", indent: int | None = None) -> str:
    """Return JSON text. Outside UTF encodings, non-ASCII is escaped; -inf becomes the string "-inf"."""
    is_ascii = not encoding.lower().replace("-", "").startswith("utf")
    write = partial(json.dumps, ensure_ascii=is_ascii, allow_nan=False)
    value = _without_inf(value)
    return write(value) if indent is None else _indented(value, write, " " * indent, "\n")


def _indented(value: Any, write: Callable[..., str], step: str, line: str) -> str:
    """Return what `json` writes with an indent, but long flat lists without a call for each item."""
    inner = line + step
    if isinstance(value, dict) and value:
        # A dict of one key, because `json` turns keys that are no strings into strings.
        items = (
            write({key: None})[1:-5] + _indented(item, write, step, inner) for key, item in value.items()
        )
        return "{" + inner + f",{inner}".join(items) + line + "}"
    if isinstance(value, list) and value:
        if _is_flat(value):
            text = write(value, separators=(f",{inner}", ": "))[1:-1]
        else:
            text = f",{inner}".join(_indented(item, write, step, inner) for item in value)
        return "[" + inner + text + line + "]"
    return write(value)


def _is_flat(items: Sequence[Any]) -> bool:
    return {type(item) for item in items} <= {str, int, bool, type(None)}


def as_float(value: Decimal) -> float | str:
    """Return the float nearest to a number that no float represents; its text if that is infinite."""
    return float(value) if math.isfinite(float(value)) else str(value)


def _without_inf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_inf(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if _is_flat(value):
            return list(value)
        return [_without_inf(item) for item in value]
    if isinstance(value, Decimal):
        return as_float(value)
    return "-inf" if isinstance(value, float) and value == -math.inf else value
