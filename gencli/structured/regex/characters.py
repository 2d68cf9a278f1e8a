"""The characters that a class, an escape or a letter matches in the `regex` package."""

from __future__ import annotations

import re
from functools import lru_cache

from gencli.structured.regex.ecma_lexer import SHORTHANDS
from gencli.structured.regex.printer import code_point, range_text
from gencli.structured.regex.tree import TOP, Chars, Ranges, drop_surrogates, invert_ranges, join_ranges

__all__ = ["chars_of", "has_case", "without_case"]

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def has_case(letter: str) -> bool:
    """Return whether a letter also matches other characters if case is ignored."""
    return not letter == letter.lower() == letter.upper() == letter.title() == letter.casefold()


@lru_cache(maxsize=1024)
def chars_of(source: str, flags: str) -> Chars:
    """Return the characters that a class, escape, dot or letter matches under flags. Raises regex.error."""
    import regex  # type: ignore[import-untyped]

    if source[0] == "[":
        source = _ESCAPE.sub(lambda found: _shorthand(found[1]) or found[0], source)
    elif source[0] == "\\" and (inside := _shorthand(source[1])):
        source, flags = f"[{inside}]", ""
    pattern = f"(?{flags}:{source})+" if flags else f"(?:{source})+"
    runs = regex.compile(pattern, regex.UNICODE | regex.V0).finditer(_all())
    return Chars(drop_surrogates(tuple((ord(run[0][0]), ord(run[0][-1])) for run in runs)))


@lru_cache(maxsize=1024)
def without_case(ranges: Ranges) -> Ranges:
    """Return the characters that match one of `ranges` if case is ignored."""
    import regex

    same = regex.compile(f"(?i:[{range_text(ranges, code_point)}])", regex.V0).findall(_cased())
    return join_ranges([*ranges, *((ord(char), ord(char)) for char in same)])


def _shorthand(letter: str) -> str:
    """Return the inside of a shorthand's class, in ASCII as in JSON Schema; "" for other letters."""
    ranges = SHORTHANDS.get(letter.lower(), ())
    return range_text(invert_ranges(ranges) if letter.isupper() else ranges, code_point) if ranges else ""


@lru_cache(maxsize=1)
def _all() -> str:
    """Return all characters in order."""
    return "".join(chr(code) for low, high in drop_surrogates(((0, TOP),)) for code in range(low, high + 1))


@lru_cache(maxsize=1)
def _cased() -> str:
    """Return all characters that also match others if case is ignored."""
    return "".join(filter(has_case, _all()))
