"""Patterns of all texts except a few, and the texts of finite patterns."""

from __future__ import annotations

from gencli.structured.errors import GiveUp
from gencli.structured.regex.ecma_reader import REST, parse_regex, whole
from gencli.structured.regex.printer import ANY, show
from gencli.structured.regex.tree import Alt, Anchor, Chars, Node, RegexError, Repeat, Seq, alt, single

__all__ = ["complement", "finite_texts", "texts_not_beginning", "texts_without"]

_MORE = Repeat(ANY, 1, None)
_FEW = 16
_LIMIT = 2_000  # characters of all words together


def texts_without(words: list[str], *, prefixes: bool = False) -> str:
    """Return a pattern of the texts not in `words`; with `prefixes`, of the texts that begin with none."""
    if sum(map(len, words)) > _LIMIT:
        raise GiveUp("too many texts to exclude")
    return f"^(?:{show(_outside(frozenset(words), prefixes))})$"


def _outside(words: frozenset[str], prefixes: bool) -> Node:
    """Return the tree of the texts that are not among the words."""
    if prefixes and "" in words:
        raise GiveUp("nothing is left")
    firsts = sorted({word[0] for word in words if word})
    branches: list[Node] = [] if "" in words else [Seq(())]
    if firsts:
        other = Chars(tuple((ord(first), ord(first)) for first in firsts), negated=True)
        branches.append(Seq((other, REST)))
    elif not prefixes:
        branches.append(_MORE)
    for first in firsts:
        below = frozenset(word[1:] for word in words if word.startswith(first))
        if not (prefixes and "" in below):
            branches.append(Seq((single(ord(first)), _outside(below, prefixes))))
    if not branches:
        raise GiveUp("nothing is left")
    return alt(branches)


def complement(text: str) -> str:
    """Return a pattern of the texts that a pattern does not match. Raises GiveUp."""
    try:
        node = parse_regex(text, is_refused=True)
    except RegexError as error:
        raise GiveUp(f"the complement of a pattern: {error}") from None
    items = list(node.items) if isinstance(node, Seq) else [node]
    if items[:1] == [Anchor("^")]:
        return texts_not_beginning(Seq(tuple(items[1:])))
    if len(items) == 1 and isinstance(items[0], Chars):
        return f"^{show(Repeat(Chars(items[0].ranges, not items[0].negated), 0, None))}$"
    raise GiveUp("the complement of such a pattern")


def finite_texts(text: str, limit: int = _FEW) -> list[str] | None:
    """Return the texts that a pattern matches if there are at most `limit`, otherwise None."""
    try:
        trees = whole(parse_regex(text))
        return list(dict.fromkeys(_words(trees[0], limit))) if len(trees) == 1 else None
    except (GiveUp, RegexError):
        return None


def texts_not_beginning(node: Node) -> str:
    """Return a pattern of the texts that begin with no word of a tree.

    If the tree ends in $, of the texts that are not a word of the tree.
    """
    words = _words(node)
    ends = {word.endswith("\0") for word in words}
    if len(ends) != 1:
        raise GiveUp("a list of words of which only a part ends in $")
    return texts_without([word.rstrip("\0") for word in words], prefixes=not ends.pop())


def _words(node: Node, limit: int = 200) -> list[str]:
    """Return all texts of a tree; \\0 stands for $. Raises GiveUp if there are more than `limit`."""
    if node == Anchor("$"):
        return ["\0"]
    if isinstance(node, Alt):
        found = [word for item in node.items for word in _words(item, limit)]
    elif isinstance(node, Seq):
        found = [""]
        for item in node.items:
            found = [before + after for before in found for after in _words(item, limit)][: limit + 1]
    elif isinstance(node, Repeat) and node.most is not None and node.least <= limit:
        found, times = [], [""]
        for count in range(min(node.most, limit) + 1):
            found += times if count >= node.least else []
            times = [before + after for before in times for after in _words(node.body, limit)][: limit + 1]
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
