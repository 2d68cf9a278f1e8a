"""Prints trees as text that Rust's regex, xgrammar and `regex` read alike: without flags and anchors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gencli.structured.regex.tree import QUANTIFIERS, TOP, Alt, Chars, Node, Ranges, RegexError, Repeat, Seq

__all__ = ["ANY", "ESCAPED", "PLAIN", "Style", "class_text", "code_point", "count_text", "range_text", "show"]

ANY = Chars(((0, TOP),))
_MARKS = {bounds: mark for mark, bounds in QUANTIFIERS.items()}


@dataclass(frozen=True, slots=True)
class Style:
    """A notation of code points; with `has_exact_counts` a repeat {2,2} is written {2}."""

    code: Callable[[int], str]
    has_exact_counts: bool


def show(node: Node, style: Style | None = None) -> str:
    """Return the text of a tree, by default in the style PLAIN.

    Raises RegexError for an anchor, a lookaround, an empty class, and in the style PLAIN for a surrogate.
    """
    style = style or PLAIN
    if isinstance(node, Chars):
        return class_text(node, style.code)
    if isinstance(node, Seq):
        return "".join(
            f"(?:{show(item, style)})" if isinstance(item, Alt) else show(item, style) for item in node.items
        )
    if isinstance(node, Alt):
        return "|".join(show(item, style) for item in node.items)
    if isinstance(node, Repeat):
        body = show(node.body, style)
        return (body if isinstance(node.body, Chars) else f"(?:{body})") + count_text(node, style)
    raise RegexError("an anchor or a lookaround in the middle")


def class_text(chars: Chars, code: Callable[[int], str]) -> str:
    """Return a class, or the character if there is only one."""
    if chars == ANY:
        return r"(?:.|\n)"
    ranges = chars.ranges
    if not ranges:
        raise RegexError("a class without characters")
    if not chars.negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return code(ranges[0][0])
    return f"[{'^' if chars.negated else ''}{range_text(ranges, code)}]"


def range_text(ranges: Ranges, code: Callable[[int], str]) -> str:
    """Return ranges as they are written inside a class."""
    return "".join(code(low) if low == high else f"{code(low)}-{code(high)}" for low, high in ranges)


def count_text(node: Repeat, style: Style) -> str:
    """Return a quantifier."""
    if mark := _MARKS.get((node.least, node.most)):
        return mark
    if node.least == node.most and style.has_exact_counts:
        return f"{{{node.least}}}"
    return f"{{{node.least},{'' if node.most is None else node.most}}}"


def code_point(code: int) -> str:
    """Return an ASCII letter or digit unchanged, another character as \\uXXXX or \\UXXXXXXXX."""
    if code < 0x80 and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _readable(code: int) -> str:
    """Return a character unchanged if it has no special meaning, otherwise escaped."""
    char = chr(code)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\x{code:02x}"
    if 0xD800 <= code < 0xE000:
        raise RegexError("half a surrogate pair")
    return char if char.isalnum() or code > 0x7F or char in " _" else "\\" + char


PLAIN = Style(_readable, has_exact_counts=True)
ESCAPED = Style(code_point, has_exact_counts=False)
