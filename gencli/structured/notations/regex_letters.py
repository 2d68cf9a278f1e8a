"""What a class, an escape or a character without case stands for, asked of the `regex` package."""

from __future__ import annotations

import re
from functools import lru_cache

import regex  # type: ignore[import-untyped]

from gencli.structured.notations.syntax import LAST, Chars, unite

__all__ = ["NEGATED", "chars_of"]

NEGATED = ("D", "W", "S")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# The shorthands are ASCII, as JSON Schema has them. Properties stay those of Unicode.
_SHORTHANDS = {
    "d": "0-9",
    "w": "0-9A-Z_a-z",
    "s": r"\x09-\x0D\x20",
    "D": r"\x00-\x2F\x3A-\U0010FFFF",
    "W": r"\x00-\x2F\x3A-\x40\x5B-\x5E\x60\x7B-\U0010FFFF",
    "S": r"\x00-\x08\x0E-\x1F\x21-\U0010FFFF",
}


@lru_cache(maxsize=1024)
def chars_of(source: str, flags: str) -> Chars:
    """The characters that a class, escape, dot or letter matches under inline flags; or regex.error."""
    if source[0] == "[":
        source = _ESCAPE.sub(lambda found: _SHORTHANDS.get(found[1], found[0]), source)
    elif source[0] == "\\" and source[1] in _SHORTHANDS:
        source, flags = f"[{_SHORTHANDS[source[1]]}]", ""
    pattern = f"(?{flags}:{source})+" if flags else f"(?:{source})+"
    runs = regex.compile(pattern, regex.UNICODE | regex.V0).finditer(_all())
    return Chars(unite((ord(run[0][0]), ord(run[0][-1])) for run in runs))


@lru_cache(maxsize=1)
def _all() -> str:
    return "".join(chr(point) for low, high in unite([(0, LAST)]) for point in range(low, high + 1))
