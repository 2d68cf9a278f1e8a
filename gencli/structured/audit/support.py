"""The support table: grades of shapes for each back end, written by scripts/probe_backends.py."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

__all__ = ["SUPPORT", "Grade", "Support", "keyword_of"]

Grade = Literal["exact", "loose", "tight", "refused", "unknown"]


@dataclass(frozen=True)
class Support:
    """The grades of one back end, and its version."""

    version: str
    shapes: dict[str, Grade]

    def grade(self, shape: str) -> Grade:
        """Return the grade of a shape.

        exact; loose: invalid values pass; tight: some valid values are rejected; refused: the back end does
        not compile the shape; unknown: the shape was not probed.
        """
        if shape.startswith("?"):
            return "unknown"
        if shape in self.shapes:
            return self.shapes[shape]
        return "refused" if keyword_of(shape) in self._unknown else "unknown"

    @cached_property
    def _unknown(self) -> frozenset[str]:
        """Keywords that the back end rejects in every form."""
        found: dict[str, set[str]] = {}
        for shape, grade in self.shapes.items():
            if "+" not in shape:
                found.setdefault(keyword_of(shape), set()).add(grade)
        return frozenset(keyword for keyword, grades in found.items() if grades == {"refused"})


def keyword_of(shape: str) -> str:
    """Return the first keyword of a shape."""
    return re.split("[:+]", shape)[0]


SUPPORT: dict[str, Support] = {
    name: Support(**entry)
    for name, entry in json.loads(
        Path(__file__).with_name("support.json").read_text(encoding="utf-8")
    ).items()
}
