"""What a writer is."""

from __future__ import annotations

import json
import math
from typing import Any, Protocol

from gencli.batch.records import Outcome

__all__ = ["RowWriter", "json_line"]


class RowWriter(Protocol):
    """Takes outcomes in the order in which they are to stand."""

    def write(self, outcome: Outcome) -> None:
        """Write one row."""
        ...


def json_line(value: Any) -> str:
    """A line of JSON with its newline; -inf is the text "-inf"."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return "-inf" if isinstance(value, float) and value == -math.inf else value
