"""ECMA-262 patterns as trees for masks: the regular part of the language, and lookarounds.

If ECMA-262, Python and Rust read a class differently, the tree has the characters on which all agree, so a
mask made from the tree never allows a text that one of them rejects.
"""

from __future__ import annotations

import re
from typing import Never

from gencli.structured.regex.ecma_lexer import SHORTHANDS, Member, class_members, code_of, tokens
from gencli.structured.regex.printer import ANY
from gencli.structured.regex.tree import (
    QUANTIFIERS,
    TOP,
    Alt,
    Anchor,
    Chars,
    Look,
    Node,
    Ranges,
    RegexError,
    Repeat,
    Seq,
    alt,
    join_ranges,
    seq,
    single,
    walk,
)

__all__ = ["REST", "parse_regex", "whole"]

REST = Repeat(ANY, 0, None)
_MOST_NESTED = 50
_MOST_BRANCHES = 64  # limit of branches for a pattern with anchors in groups
# Characters that some dialects add to a shorthand. Its complement excludes them too.
_DISPUTED = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{N}",
    "s": "\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
}
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
_PROPERTY = re.compile(r"p\{(?:L|N|Nd)\}")


def parse_regex(text: str) -> Node:
    """Return the tree of a pattern.

    Raises RegexError if the pattern is invalid or not regular: back references, word boundaries, flags, and
    properties outside negated classes.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0  # index of the next token

    def read(self) -> Node:
        node = self._alternatives(0)
        if self._at < len(self._tokens):
            self._fail("a ) that nothing opens", self._tokens[self._at].start())
        return node

    def _fail(self, what: str, offset: int) -> Never:
        raise RegexError(f"{self._text!r} at {offset}: {what}")

    def _take(self, *texts: str) -> bool:
        """Advance over the next token if it is one of these texts."""
        found = self._at < len(self._tokens) and self._tokens[self._at][0] in texts
        self._at += found
        return found

    def _alternatives(self, depth: int) -> Node:
        if depth > _MOST_NESTED:
            self._fail(f"more than {_MOST_NESTED} groups in each other", self._tokens[self._at - 1].end())
        items = [self._sequence(depth)]
        while self._take("|"):
            items.append(self._sequence(depth))
        return alt(items)

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self._at < len(self._tokens) and self._tokens[self._at][0] not in ("|", ")"):
            items.append(self._repeated(self._atom(depth)))
        return seq(items)

    def _repeated(self, node: Node) -> Node:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.lastgroup != "repeat":
            return node
        sign, end = token[0], token.end()
        if isinstance(node, Anchor | Look):
            self._fail("a quantifier that quantifies no character", end - (len(sign) > 1 and sign[-1] == "?"))
        self._at += 1
        if self._at < len(self._tokens) and self._tokens[self._at].lastgroup == "repeat":
            self._fail("a quantifier that quantifies nothing", self._tokens[self._at].end())
        least, most = _bounds(token)
        return Repeat(node, least, most)

    def _atom(self, depth: int) -> Node:
        token = self._tokens[self._at]
        self._at += 1
        match token.lastgroup:
            case "open":
                return self._group(token, depth)
            case "class":
                return self._class(token)
            case "escape":
                return self._escape(token["escape"], token.start())
            case "flags":
                self._fail("a group of a kind that is no part of ECMA 262, or flags", token.start() + 1)
            case "repeat":
                self._fail("a quantifier that quantifies nothing", token.start() + 1)
        if token[0] == ".":
            return Chars(_LINE_ENDS, True)
        return Anchor(token[0]) if token[0] in "^$" else single(ord(token[0]))

    def _group(self, token: re.Match[str], depth: int) -> Node:
        if token[0] == "(?i:":
            self._fail("a group of a kind that is no part of ECMA 262, or flags", token.start() + 1)
        body = self._alternatives(depth + 1)
        if not self._take(")"):
            self._fail("a ( that is not closed", len(self._text))
        return Look(token[0][1:], body) if token[0] in _LOOKS else body

    def _escape(self, escape: str, offset: int) -> Chars:
        if escape.lower() in SHORTHANDS:
            ranges = SHORTHANDS[escape.lower()]
            return Chars(ranges, True, _DISPUTED[escape.lower()]) if escape.isupper() else Chars(ranges)
        if escape[0] in "123456789kbBcpP":
            self._fail(f"\\{escape[0]} is not regular, or not known", offset + 2)
        return single(code_of(escape))

    def _class(self, token: re.Match[str]) -> Chars:
        is_negated = token[0].startswith("[^")
        head = 2 if is_negated else 1
        members = list(class_members(token[0][head:-1], token.start() + head))
        ranges: list[tuple[int, int]] = []
        but = ""
        for index, member in enumerate(members):
            name = member.name
            if name == "-":
                self._fail("a range that goes down, or ends in a class", members[index + 1].end)
            if member.span:
                ranges.append(member.span)
            elif name in SHORTHANDS:
                ranges += SHORTHANDS[name]
                but += _DISPUTED[name]
            elif name.lower() in SHORTHANDS:
                if not _has_both(members[max(0, index - 1) : index + 2], name.lower()):
                    self._fail("a class with a complement in it", member.end)
                ranges.append((0, TOP))
            elif is_negated and _PROPERTY.fullmatch(name):
                but += "\\" + name
            else:
                self._fail(f"\\{name[0]} is not regular, or not known", member.end - len(name) + 1)
        return Chars(join_ranges(ranges), is_negated, but if is_negated else "")


def _bounds(token: re.Match[str]) -> tuple[int, int | None]:
    if token[0][0] in QUANTIFIERS:
        return QUANTIFIERS[token[0][0]]
    least = int(token["least"])
    if token["most"]:
        return least, int(token["most"])
    return least, None if "," in token[0] else least


def _has_both(members: list[Member], letter: str) -> bool:
    """Whether a class has both a shorthand and its complement, such as \\s and \\S."""
    names = [member.name for member in members]
    return letter in names and letter.upper() in names


def whole(node: Node) -> list[Node]:
    """Return trees that all match the whole text if and only if the pattern matches somewhere in it.

    There is one tree, and one more for each lookahead at the start. Raises RegexError for an anchor or a
    lookaround elsewhere.
    """
    branches = _spread(node)
    if len(branches) == 1:
        return _ends(branches[0])
    ends = [_ends(branch) for branch in branches]
    if any(len(end) > 1 for end in ends):
        raise RegexError("a lookahead in one branch of several")
    return [Alt(tuple(end[0] for end in ends))]


def _spread(node: Node) -> list[tuple[Node, ...]]:
    """Return the branches, each a sequence; groups that contain anchors or lookarounds are multiplied out."""
    if isinstance(node, Alt):
        found = [branch for item in node.items for branch in _spread(item)]
    elif isinstance(node, Seq):
        found = [()]
        for item in node.items:
            ways = _spread(item) if _has_asserts(item) else [(item,)]
            found = [(*before, *way) for before in found for way in ways]
            if len(found) > _MOST_BRANCHES:
                break
    else:
        found = [(node,)]
    if len(found) > _MOST_BRANCHES:
        raise RegexError("too many branches with anchors")
    return found


def _has_asserts(node: Node) -> bool:
    return any(isinstance(each, Anchor | Look) for each in walk(node))


def _ends(branch: tuple[Node, ...]) -> list[Node]:
    """Return the trees of one branch without anchors; REST is added at an end without an anchor."""
    items = list(branch)
    is_start = bool(items) and items[0] == Anchor("^")
    while items and items[0] == Anchor("^"):
        del items[0]
    conditions = []
    while items and isinstance(look := items[0], Look) and look.kind == "?=" and is_start:
        conditions.append(Seq((Anchor("^"), look.body)))
        del items[0]
    is_end = bool(items) and items[-1] == Anchor("$")
    while items and items[-1] == Anchor("$"):
        del items[-1]
    if any(_has_asserts(item) for item in items):
        raise RegexError("an anchor or a lookaround in the middle")
    body = Seq((*(() if is_start else (REST,)), *items, *(() if is_end else (REST,))))
    return [body, *(tree for condition in conditions for tree in whole(condition))]
