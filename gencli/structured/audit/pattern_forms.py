"""What is special about a pattern, as far as back ends are known to differ in it."""

from __future__ import annotations

import re

from gencli.structured.rewrite.anchors import escapes_needed, whole
from gencli.structured.rewrite.regex import Anchor, Look, Node, RegexError, Repeat, Seq, parse_regex

__all__ = ["pattern_forms"]


def pattern_forms(text: str) -> list[str]:
    """What is special about a pattern: it searches, needs escapes, looks around, is not regular."""
    try:
        node = parse_regex(text)
    except RegexError:
        return [":irregular"]
    if _looks(node):
        return [":lookaround"]
    try:
        trees = whole(node)
    except RegexError:
        return [":anchors"]
    found = [] if _is_anchored(node) else [":search"]
    if any(map(_is_nested, trees)):
        found.append(":nested")
    if any(escapes_needed(tree) for tree in trees):
        found.append(":escapes")
    if re.search(r"\\[WDS]|\[\^[^\]]*\\[wds]", text):
        found.append(":unicode")
    if r"\p{" in text:
        found.append(":property")
    if not text.isascii():
        found.append(":wide")
    return found or [""]


def _is_nested(node: Node, *, inside: bool = False) -> bool:
    """Whether something repeated stands in something repeated."""
    if isinstance(node, Repeat):
        return inside or _is_nested(node.body, inside=True)
    return any(_is_nested(item, inside=inside) for item in getattr(node, "items", ()))


def _looks(node: Node) -> bool:
    if isinstance(node, Repeat):
        return _looks(node.body)
    return isinstance(node, Look) or any(_looks(item) for item in getattr(node, "items", ()))


def _is_anchored(node: Node) -> bool:
    ends = Anchor("^"), Anchor("$")
    return isinstance(node, Seq) and node.items[:1] == ends[:1] and node.items[-1:] == ends[1:]
