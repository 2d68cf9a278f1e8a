"""All texts but a few, as a pattern."""

from __future__ import annotations

from gencli.structured.rewrite.anchors import ANY, show, whole
from gencli.structured.rewrite.node import GiveUp
from gencli.structured.rewrite.regex import Alt, Anchor, Chars, Node, RegexError, Repeat, Seq, parse_regex

__all__ = ["listed", "others", "refusal", "unlike"]

_REST = Repeat(ANY, 0, None)
_MORE = Repeat(ANY, 1, None)
_FEW = 16
_LIMIT = 2_000  # characters of all words


def others(words: list[str], *, prefixes: bool = False) -> str:
    """A pattern of every text that is none of `words`, or with `prefixes` begins with none of them."""
    if sum(map(len, words)) > _LIMIT:
        raise GiveUp("too many texts to exclude")
    return f"^(?:{show(_outside(frozenset(words), prefixes))})$"


def _outside(words: frozenset[str], prefixes: bool) -> Node:
    """Texts that are none of the words; the words share what came before."""
    if prefixes and "" in words:
        raise GiveUp("nothing is left")
    firsts = sorted({word[0] for word in words if word})
    branches: list[Node] = [] if "" in words else [Seq(())]
    if firsts:
        other = Chars(tuple((ord(first), ord(first)) for first in firsts), negated=True)
        branches.append(Seq((other, _REST)))
    elif not prefixes:
        branches.append(_MORE)
    for first in firsts:
        below = frozenset(word[1:] for word in words if word.startswith(first))
        if not (prefixes and "" in below):
            branches.append(Seq((Chars(((ord(first), ord(first)),)), _outside(below, prefixes))))
    if not branches:
        raise GiveUp("nothing is left")
    return Alt(tuple(branches)) if len(branches) > 1 else branches[0]


def unlike(text: str) -> str:
    """A pattern of the texts that a pattern does not match."""
    try:
        node = parse_regex(text)
    except RegexError as error:
        raise GiveUp(f"the complement of a pattern: {error}") from None
    items = list(node.items) if isinstance(node, Seq) else [node]
    if items[:1] == [Anchor("^")]:
        return refusal(Seq(tuple(items[1:])))
    if len(items) == 1 and isinstance(items[0], Chars) and not items[0].but:
        return f"^{show(Repeat(Chars(items[0].ranges, not items[0].negated), 0, None))}$"
    raise GiveUp("the complement of such a pattern")


def listed(text: str) -> list[str] | None:
    """The texts that a pattern matches, if they are few."""
    try:
        trees = whole(parse_regex(text))
        return _words(trees[0], _FEW) if len(trees) == 1 else None
    except (GiveUp, RegexError):
        return None


def refusal(node: Node) -> str:
    """Texts that do not begin with one of the words of a tree, or where it ends in $, are none of them."""
    words = _words(node)
    ends = {word.endswith("\0") for word in words}
    if len(ends) != 1:
        raise GiveUp("a list of words of which only a part ends in $")
    return others([word.rstrip("\0") for word in words], prefixes=not ends.pop())


def _words(node: Node, limit: int = 200) -> list[str]:
    """All texts of a tree, if they are few; \\0 stands for $."""
    if node == Anchor("$"):
        return ["\0"]
    if isinstance(node, Alt):
        found = [word for item in node.items for word in _words(item)]
    elif isinstance(node, Seq):
        found = [""]
        for item in node.items:
            found = [before + after for before in found for after in _words(item)][: limit + 1]
    elif (
        isinstance(node, Chars)
        and not node.negated
        and sum(high - low + 1 for low, high in node.ranges) <= 64
    ):
        found = [chr(code) for low, high in node.ranges for code in range(low, high + 1)]
    else:
        raise GiveUp("what is no list of words")
    if len(found) > limit:
        raise GiveUp("more than a few words")
    return found
