"""Properties of a pattern by which back ends are known to differ."""

from __future__ import annotations

import re

from gencli.structured.regex.ecma_reader import approximate, parse_regex, whole
from gencli.structured.regex.tree import (
    Anchor,
    Chars,
    Look,
    Node,
    RegexError,
    Repeat,
    Seq,
    invert_ranges,
    walk,
)

__all__ = ["needs_escapes", "pattern_forms"]


def pattern_forms(text: str) -> list[str]:
    """Return the properties of a pattern as suffixes of shapes; [""] if it has none.

    Examples: the pattern is not anchored, needs JSON escapes, has lookarounds, is not regular.
    """
    try:
        node = parse_regex(text)
    except RegexError:
        return [":irregular"]
    if "(?i" in text:  # no part of ECMA-262
        return [":irregular"]
    if _has(node, Look):
        return [":lookaround"]
    try:
        trees = whole(node)
    except RegexError:
        return [":anchors"]
    found = [] if _is_anchored(node) else [":search"]
    if any(map(_is_nested, trees)):
        found.append(":nested")
    if any(map(_needs_escapes, trees)):
        found.append(":escapes")
    if re.search(r"\\[WDS]|\[\^[^\]]*\\[wds]", text):
        found.append(":unicode")
    if re.search(r"\\[pP]\{", text):
        found.append(":property")
    if not text.isascii():
        found.append(":wide")
    if re.search(r"[\x00-\x1f\x7f]", text):
        found.append(":control")
    return found or [""]


def needs_escapes(text: str) -> bool:
    """Whether a text that a pattern matches may have characters that JSON writes with a backslash."""
    node = approximate(text)[0]
    return not _is_anchored(node) or _needs_escapes(node)


def _is_nested(node: Node) -> bool:
    """Whether a repeated part contains a repeated part."""
    return any(isinstance(each, Repeat) and _has(each.body, Repeat) for each in walk(node))


def _has(node: Node, kind: type) -> bool:
    return any(isinstance(each, kind) for each in walk(node))


def _needs_escapes(node: Node) -> bool:
    """Whether a matching text may have characters that JSON writes with a backslash."""
    return any(isinstance(each, Chars) and _has_escaped(each) for each in walk(node))


def _has_escaped(chars: Chars) -> bool:
    ranges = invert_ranges(chars.ranges) if chars.negated else chars.ranges
    return any(low < 0x20 or low <= 0x22 <= high or low <= 0x5C <= high for low, high in ranges)


def _is_anchored(node: Node) -> bool:
    ends = Anchor("^"), Anchor("$")
    return isinstance(node, Seq) and node.items[:1] == ends[:1] and node.items[-1:] == ends[1:]
