"""ECMA-262 patterns as trees for masks: all of the language but back references.

If ECMA-262, Python and Rust read a class differently, the tree has the characters on which all agree, and in
what must not match the characters of all, so a mask made from the tree never allows a text that one of them
rejects. The characters of a property are those
that the `regex` package knows, which the final check uses too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Never

from gencli.structured.regex.characters import chars_of, without_case
from gencli.structured.regex.ecma_lexer import SHORTHANDS, class_members, code_of, is_set, tokens
from gencli.structured.regex.printer import ANY
from gencli.structured.regex.tree import (
    EMPTY,
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
    chars,
    invert_ranges,
    join_ranges,
    parts,
    seq,
    walk,
)

__all__ = ["REST", "approximate", "bare", "parse_regex", "whole", "without_assertion"]

REST = Repeat(ANY, 0, None)
_MOST_NESTED = 50
_MOST_BRANCHES = 64  # limit of branches for a pattern with anchors in groups
_SPACES = "\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
# Characters that some dialects add to a shorthand.
_DISPUTED = {"d": r"\p{Nd}", "w": r"[\p{L}\p{N}]", "s": f"[{_SPACES}]"}
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
_NAMED = re.compile(r"\(\?P?<(\w+)>")


def parse_regex(text: str, *, is_refused: bool = False) -> Node:
    """Return the tree of a pattern; with `is_refused`, of one that must not match.

    Raises RegexError if it is invalid, or not regular: a back reference.
    """
    reader = _Reader(text, is_refused)
    node = reader.read()
    if reader.open:
        raise RegexError(f"{text!r}: {reader.open[0]} is not regular")
    return node


def approximate(text: str) -> tuple[Node, list[str]]:
    """Return a tree that matches all texts of a pattern, and the parts of it that the tree does not enforce.

    Raises RegexError if the pattern is invalid.
    """
    reader = _Reader(text)
    return reader.read(), list(dict.fromkeys(reader.open))


class _Reader:
    def __init__(self, text: str, is_refused: bool = False) -> None:
        self._text = text
        self._is_refused = is_refused
        self._tokens = list(tokens(text))
        self._at = 0  # index of the next token
        self._ignores_case = any(token.lastgroup == "flags" for token in self._tokens)
        self._groups: list[Node | None] = []  # by number; None: not closed yet
        self._names: dict[str, int] = {}
        self.open: list[str] = []  # parts of which the tree matches too much

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
                return self._escape(token)
            case "flags":
                return EMPTY
            case "repeat":
                self._fail("a quantifier that quantifies nothing", token.start() + 1)
        if token[0] == ".":
            return Chars(_LINE_ENDS, True)
        return Anchor(token[0]) if token[0] in "^$" else self._letter(ord(token[0]))

    def _letter(self, code: int) -> Chars:
        return chars(without_case(((code, code),))) if self._ignores_case else chars([(code, code)])

    def _group(self, token: re.Match[str], depth: int) -> Node:
        number = None
        named = _NAMED.match(token[0])
        if token[0] == "(" or named:
            number = len(self._groups)
            self._groups.append(None)
            if named:
                self._names[named[1]] = number
        is_negative = token[0] in ("(?!", "(?<!")
        before, num_open = (self._ignores_case, self._is_refused), len(self.open)
        self._ignores_case |= token[0] == "(?i:"
        self._is_refused ^= is_negative
        body = self._alternatives(depth + 1)
        self._ignores_case, self._is_refused = before
        if not self._take(")"):
            self._fail("a ( that is not closed", len(self._text))
        if number is not None:
            self._groups[number] = body
        if token[0] not in _LOOKS:
            return body
        text = self._text[token.start() : self._tokens[self._at - 1].end()]
        if is_negative and len(self.open) > num_open:
            self.open[num_open:] = [text]  # more texts in it would be fewer outside
            return EMPTY
        return Look(token[0][1:], body, text)

    def _escape(self, token: re.Match[str]) -> Node:
        escape = token["escape"]
        if escape in ("b", "B"):
            return Anchor(token[0])
        if escape[0] in "123456789":
            return self._reference(token[0], int(escape) - 1)
        if escape[0] == "k" and len(escape) > 1:
            return self._reference(token[0], self._names.get(escape[2:-1], -1))
        if is_set(escape):
            return self._set([escape], [])
        return self._letter(code_of(escape))

    def _reference(self, text: str, number: int) -> Node:
        """Return a tree of all texts that a back reference may stand for."""
        group = self._groups[number] if 0 <= number < len(self._groups) else None
        if group is None:  # the group has not ended, so it has no text
            return EMPTY
        self.open.append(text)
        return alt([bare(group), EMPTY])

    def _class(self, token: re.Match[str]) -> Chars:
        is_negated = token[0].startswith("[^")
        head = 2 if is_negated else 1
        members = list(class_members(token[0][head:-1], token.start() + head))
        spans = [member.span for member in members if member.span]
        return self._set([member.name for member in members if not member.span], spans, is_negated)

    def _set(self, names: list[str], spans: list[tuple[int, int]], is_negated: bool = False) -> Chars:
        """Return the characters of named sets and of ranges, or with `is_negated` all others."""
        ranges = list(spans)
        for name in names:
            ranges += _named_ranges(name, "i" * self._ignores_case, is_wide=is_negated != self._is_refused)
        if any(name.upper() in names and name in names for name in SHORTHANDS):
            ranges = [(0, TOP)]
        found = join_ranges(ranges)
        if self._ignores_case:
            found = without_case(found)
        return chars(invert_ranges(found) if is_negated else found)


def _named_ranges(name: str, flags: str, *, is_wide: bool) -> Ranges:
    """Return the characters of a shorthand or a property; with `is_wide` those that any dialect has in it."""
    if name[0] in "pP":
        import regex  # type: ignore[import-untyped]

        try:
            return chars_of("\\" + name, flags).ranges
        except regex.error as error:
            raise RegexError(f"\\{name}: {error}") from None
    if name.isupper():
        return invert_ranges(_named_ranges(name.lower(), flags, is_wide=not is_wide))
    few = SHORTHANDS[name]
    return join_ranges([*few, *chars_of(_DISPUTED[name], "").ranges]) if is_wide else few


def bare(node: Node) -> Node:
    """Return the tree without anchors, word boundaries and lookarounds; it matches all that the tree does."""
    if isinstance(node, Anchor | Look):
        return EMPTY
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(map(bare, node.items)))
    return Repeat(bare(node.body), node.least, node.most) if isinstance(node, Repeat) else node


def without_assertion(node: Node) -> tuple[Node, str]:
    """Return the tree without one of its assertions, and that as written; ("" if there is none).

    Lookarounds go first, the longest of them before others; then word boundaries; then all anchors.
    """
    outer = list(_outer(node))
    if looks := [each for each in outer if isinstance(each, Look)]:
        look = max(looks, key=lambda each: len(each.text))
        return _replaced(node, look), look.text
    anchors = [each for each in outer if isinstance(each, Anchor)]
    for kind in (r"\b", r"\B"):
        if Anchor(kind) in anchors:
            return _replaced(node, Anchor(kind)), kind
    return bare(node), " and ".join(dict.fromkeys(each.kind for each in anchors))


def _outer(node: Node) -> Iterator[Node]:
    """Yield the nodes that are in no lookaround."""
    yield node
    if not isinstance(node, Look):
        for part in parts(node):
            yield from _outer(part)


def _replaced(node: Node, gone: Node) -> Node:
    """Return the tree with the empty text for a node, but not inside lookarounds."""
    if node == gone:
        return EMPTY
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(_replaced(item, gone) for item in node.items))
    return Repeat(_replaced(node.body, gone), node.least, node.most) if isinstance(node, Repeat) else node


def _bounds(token: re.Match[str]) -> tuple[int, int | None]:
    if token[0][0] in QUANTIFIERS:
        return QUANTIFIERS[token[0][0]]
    least = int(token["least"])
    if token["most"]:
        return least, int(token["most"])
    return least, None if "," in token[0] else least


def whole(node: Node) -> list[Node]:
    """Return trees that all match the whole text if and only if the pattern matches somewhere in it.

    There is one tree, and one more for each lookahead at the start. Raises RegexError for an anchor, a word
    boundary or a lookaround elsewhere.
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
