"""A pattern searches, says JSON Schema [49]; here it becomes one that matches the whole text."""

from __future__ import annotations

from gencli.structured.rewrite.regex import TOP, Alt, Anchor, Chars, Look, Node, RegexError, Repeat, Seq

__all__ = ["ANY", "escapes_needed", "show", "whole"]

ANY = Chars(((0, TOP),))
_REST = Repeat(ANY, 0, None)
_LIMIT = 64  # branches that a group with anchors in it may become
_QUOTED = frozenset('"\\')


def whole(node: Node) -> list[Node]:
    """Trees that each have to match the whole text for the pattern to be found somewhere in it.

    More than one where the pattern begins with lookaheads. RegexError if an anchor or a lookaround stands
    where this cannot be said.
    """
    branches = _spread(node)
    if len(branches) == 1:
        return _ends(branches[0])
    ends = [_ends(branch) for branch in branches]
    if any(len(end) > 1 for end in ends):
        raise RegexError("a lookahead in one branch of several")
    return [Alt(tuple(end[0] for end in ends))]


def _spread(node: Node) -> list[tuple[Node, ...]]:
    """The branches, each a sequence: groups that hold anchors or lookarounds are multiplied out."""
    if isinstance(node, Alt):
        found = [branch for item in node.items for branch in _spread(item)]
    elif isinstance(node, Seq):
        found = [()]
        for item in node.items:
            parts = _spread(item) if _has_asserts(item) else [(item,)]
            found = [(*before, *part) for before in found for part in parts]
            if len(found) > _LIMIT:
                break
    else:
        found = [(node,)]
    if len(found) > _LIMIT:
        raise RegexError("too many branches with anchors")
    return found


def _has_asserts(node: Node) -> bool:
    if isinstance(node, Anchor | Look):
        return True
    if isinstance(node, Seq | Alt):
        return any(_has_asserts(item) for item in node.items)
    return isinstance(node, Repeat) and _has_asserts(node.body)


def _ends(branch: tuple[Node, ...]) -> list[Node]:
    items = list(branch)
    is_start = bool(items) and items[0] == Anchor("^")
    while items and items[0] == Anchor("^"):
        del items[0]
    conditions = []
    while items and isinstance(items[0], Look) and items[0].kind == "?=" and is_start:
        conditions.append(Seq((Anchor("^"), items.pop(0).body)))  # type: ignore[union-attr]
    is_end = bool(items) and items[-1] == Anchor("$")
    while items and items[-1] == Anchor("$"):
        del items[-1]
    if any(_has_asserts(item) for item in items):
        raise RegexError("an anchor or a lookaround in the middle")
    body = Seq((*(() if is_start else (_REST,)), *items, *(() if is_end else (_REST,))))
    return [body, *(tree for condition in conditions for tree in whole(condition))]


def escapes_needed(node: Node) -> bool:
    """Whether a text that matches may have characters that JSON writes with a backslash."""
    if isinstance(node, Chars):
        if node.negated:
            return not _covers(node, range(0x20)) or not _covers(node, (0x22, 0x5C))
        return any(low < 0x20 or low <= 0x22 <= high or low <= 0x5C <= high for low, high in node.ranges)
    if isinstance(node, Seq | Alt):
        return any(escapes_needed(item) for item in node.items)
    return isinstance(node, Repeat) and escapes_needed(node.body)


def _covers(node: Chars, codes: range | tuple[int, ...]) -> bool:
    return all(any(low <= code <= high for low, high in node.ranges) for code in codes)


def show(node: Node) -> str:
    """The pattern as text that Rust's regex and xgrammar read alike, without anchors."""
    if isinstance(node, Chars):
        return _show_chars(node)
    if isinstance(node, Seq):
        return "".join(f"(?:{show(item)})" if isinstance(item, Alt) else show(item) for item in node.items)
    if isinstance(node, Alt):
        return "|".join(show(item) for item in node.items)
    if isinstance(node, Repeat):
        body = show(node.body)
        return (body if isinstance(node.body, Chars) else f"(?:{body})") + _times(node.least, node.most)
    raise RegexError("an anchor or a lookaround in the middle")


def _times(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in short:
        return short[least, most]
    return f"{{{least},{'' if most is None else most}}}" if least != most else f"{{{least}}}"


def _show_chars(node: Chars) -> str:
    if node == ANY:
        return r"(?:.|\n)"
    if not node.negated and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return _show_code(node.ranges[0][0])
    inside = "".join(
        _show_code(low) if low == high else f"{_show_code(low)}-{_show_code(high)}"
        for low, high in node.ranges
    )
    return f"[{'^' if node.negated else ''}{inside}{node.but}]"


def _show_code(code: int) -> str:
    sign = chr(code)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\x{code:02x}"
    if 0xD800 <= code < 0xE000:
        raise RegexError("half a surrogate pair")
    return sign if sign.isalnum() or code > 0x7F or sign in " _" else "\\" + sign
