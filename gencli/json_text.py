"""Write standard JSON in any text encoding."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

__all__ = ["as_float", "to_json"]


def to_json(value: Any, *, encoding: str = "utf-8", indent: int | None = None) -> str:
    """Return JSON text. Outside UTF encodings, non-ASCII is escaped; -inf becomes the string "-inf"."""
    is_ascii = not encoding.lower().replace("-", "").startswith("utf")
    return json.dumps(_without_inf(value), ensure_ascii=is_ascii, indent=indent, allow_nan=False)


def as_float(value: Decimal) -> float | str:
    """Return the float nearest to a number that no float represents; its text if that is infinite."""
    return float(value) if math.isfinite(float(value)) else str(value)


def _without_inf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_inf(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_inf(item) for item in value]
    if isinstance(value, Decimal):
        return as_float(value)
    return "-inf" if isinstance(value, float) and value == -math.inf else value
