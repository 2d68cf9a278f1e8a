"""Rewriting of string keywords: lengths, patterns, formats."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import combinations

from gencli.structured.audit.pattern_forms import needs_escapes, pattern_forms
from gencli.structured.audit.support import SUPPORT
from gencli.structured.errors import GiveUp
from gencli.structured.regex.automaton import between, searched
from gencli.structured.regex.ecma_reader import REST, approximate, parse_regex, whole, without_assertion
from gencli.structured.regex.printer import show
from gencli.structured.regex.tree import (
    TOP,
    Anchor,
    Look,
    Node,
    Ranges,
    RegexError,
    Seq,
    literal,
    seq,
    within,
)
from gencli.structured.regex.words import texts_not_beginning
from gencli.structured.rewrite.formats import HOST_LENGTH, LENGTHS, PATTERNS
from gencli.structured.rewrite.node import ALSO, AT, Flat, Scope, put, without
from gencli.structured.schema.formats import FORMATS

__all__ = ["are_apart", "is_exact", "rewrite_string", "safe_patterns", "single_pattern"]

_UNESCAPED = ((0x20, 0x21), (0x23, 0x5B), (0x5D, TOP))  # characters that JSON writes without a backslash
_PLAIN = r'[^"\\\x00-\x1f\x7f]'  # characters that JSON writes unescaped


def rewrite_string(flat: Flat, scope: Scope) -> Flat:
    """Return the flat schema with its string keywords rewritten."""
    flat = _ending(flat, scope)
    singles = [without(flat, ALSO), *flat.get(ALSO, ())]
    rewritten = [_pattern(_format(single, scope), scope) for single in singles]
    flat, *also = [one for single in rewritten for one in [without(single, ALSO), *single.get(ALSO, ())]]
    also = [one for one in also if one.keys() - {AT}]
    if also and "pattern" not in flat and scope.backend == "xgrammar":
        flat, also = {**flat, **also[0], AT: {**flat[AT], **also[0][AT]}}, also[1:]
    flat = _length(flat, scope) if scope.backend == "xgrammar" else flat
    return {**flat, ALSO: also} if also else flat


def _ending(flat: Flat, scope: Scope) -> Flat:
    """Add a maximum length to a format without one, because its texts could be endless."""
    most = LENGTHS.get(flat.get("format", ""))
    if most is None or flat.keys() & {"maxLength", "pattern", ALSO} or flat.get("minLength", 0) > most:
        return flat
    places = flat[AT].get("format", frozenset())
    if scope.backend == "xgrammar":  # xgrammar ignores a length next to a format
        scope.unbounded.update(places)
        return flat
    scope.note(places, f"rewritten: at most {most:,} characters")
    return put(flat, "maxLength", most, places)


def _grade(shape: str, scope: Scope) -> str:
    return SUPPORT[scope.backend].grade(shape)


def _format(flat: Flat, scope: Scope) -> Flat:
    name = flat.get("format")
    if name is None or _grade(f"format:{name}", scope) == "exact" or name not in FORMATS:
        return flat
    if name not in PATTERNS or (scope.backend == "xgrammar" and "pattern" in flat):
        return flat
    places = flat[AT].get("format", frozenset())
    if name == "hostname":
        if scope.backend == "xgrammar":  # xgrammar ignores a length next to a pattern
            return flat
        flat = put(flat, "maxLength", min(flat.get("maxLength", HOST_LENGTH), HOST_LENGTH), places)
    scope.note(places, "rewritten: a pattern")
    flat = without(flat, "format")
    if "pattern" not in flat:
        return put(flat, "pattern", PATTERNS[name], places)
    return {**flat, ALSO: [*flat.get(ALSO, ()), {"pattern": PATTERNS[name], AT: {"pattern": places}}]}


def _pattern(flat: Flat, scope: Scope) -> Flat:
    if "pattern" not in flat or is_exact(flat["pattern"], scope):
        return flat
    places = flat[AT].get("pattern", frozenset())
    try:
        (first, *more), loose = _enforced(flat["pattern"], scope)
    except (RegexError, GiveUp) as error:
        scope.leave(places, f"the pattern cannot be said in a mask: {error}")
        return without(flat, "pattern")
    if loose:
        scope.leave(places, f"the mask enforces all of the pattern but {', '.join(loose)}")
    if scope.backend == "xgrammar" and needs_escapes(flat["pattern"]):
        scope.narrow(places, "rewritten: without valid characters that need a backslash")
    scope.note(places, "rewritten: anchored, with the characters that all readings share")
    flat = put(flat, "pattern", first)
    if not more:
        return flat
    also = [{"pattern": text, AT: {"pattern": places}} for text in more]
    return {**flat, ALSO: [*flat.get(ALSO, ()), *also]}


def _enforced(text: str, scope: Scope) -> tuple[list[str], list[str]]:
    """Return anchored patterns that all have to match, and the parts of `text` that they do not enforce.

    A back reference becomes any text of its group. If the automaton of a pattern is too large, assertions are
    left out one by one.
    """
    node, loose = approximate(text)
    while True:
        scope.deadline.check()
        try:
            return _anchored(node, scope), loose
        except (RegexError, GiveUp):
            node, part = without_assertion(node)
            if not part:
                raise
            loose.append(part)


def _anchored(node: Node, scope: Scope) -> list[str]:
    """Return anchored patterns of a tree; only one for xgrammar."""
    if scope.backend == "llguidance":
        with suppress(GiveUp):
            return _several(node)
    return [_single(node, _UNESCAPED)]  # xgrammar would write the others as they are


def is_exact(pattern: str, scope: Scope) -> bool:
    """Whether the back end reads the pattern correctly."""
    return all(_grade(f"pattern{form}", scope) == "exact" for form in pattern_forms(pattern))


def safe_patterns(text: str) -> list[str]:
    """Return anchored patterns that all have to match; lookaheads (?!...) at the start become complements."""
    return _several(parse_regex(text))


def _several(node: Node) -> list[str]:
    """Return the anchored patterns of a tree: one, and one more for each lookaround at its ends."""
    items = list(node.items) if isinstance(node, Seq) else [node]
    looks: list[Look] = []
    while items[:1] == [Anchor("^")] and len(items) > 1 and isinstance(look := items[1], Look):
        if look.kind.startswith("?<"):
            break
        looks.append(look)
        del items[1]
    while items[-1:] == [Anchor("$")] and len(items) > 1 and isinstance(look := items[-2], Look):
        if not look.kind.startswith("?<"):
            break
        looks.append(look)
        del items[-2]
    return [_single(seq(items)), *map(_at_end, looks)]


def _at_end(look: Look) -> str:
    """Return an anchored pattern of the texts at whose start, or end, a lookaround holds."""
    is_ahead = not look.kind.startswith("?<")
    tree = Seq((Anchor("^"), look.body) if is_ahead else (look.body, Anchor("$")))
    if look.kind.endswith("="):
        return _single(tree)
    if is_ahead:
        with suppress(GiveUp):
            return texts_not_beginning(look.body)
    return _found(between([REST], [_tree(tree)]))


def _single(node: Node, ranges: Ranges = ((0, TOP),)) -> str:
    """Return the one anchored pattern of a tree, for texts of these characters. Raises GiveUp."""
    trees = _trees(node)
    if ranges != ((0, TOP),):
        trees = [within(tree, ranges) for tree in trees]
    if len(trees) == 1:
        with suppress(RegexError):
            return f"^(?:{show(trees[0])})$"
    return _found(between(trees, ()))


def _found(text: str | None) -> str:
    if text is None:
        raise GiveUp("no text matches it")
    return text


def single_pattern(texts: Iterable[str], but: Iterable[str] = (), words: Iterable[str] = ()) -> str | None:
    """Return one anchored pattern of the texts that match all `texts` and no `but`, and are none of `words`.

    Returns None if no text is left. Raises GiveUp or RegexError if there is no such pattern.
    """
    wanted = [tree for text in texts for tree in _trees(parse_regex(text))]
    refused = [*(_tree(parse_regex(text, is_refused=True)) for text in but), *map(literal, words)]
    if len(wanted) == 1 and not refused:
        with suppress(RegexError):
            return f"^(?:{show(wanted[0])})$"
    return between(wanted, refused)


def _trees(node: Node) -> list[Node]:
    """Return trees that all match a whole text if and only if the pattern matches in it."""
    try:
        return whole(node)
    except RegexError:
        return [searched(node)]


def _tree(node: Node) -> Node:
    trees = _trees(node)
    return trees[0] if len(trees) == 1 else searched(node)


@lru_cache(maxsize=1024)
def are_apart(texts: tuple[str, ...]) -> bool:
    """Whether certainly no text matches two of the patterns."""
    try:
        return all(single_pattern(pair) is None for pair in combinations(texts, 2))
    except (GiveUp, RegexError):
        return False


def _length(flat: Flat, scope: Scope) -> Flat:
    """Rewrite lengths as a pattern of unescaped characters; xgrammar would also count control characters."""
    keys = [key for key in ("minLength", "maxLength") if key in flat]
    if not keys or "pattern" in flat or "format" in flat:
        return flat
    places = frozenset(place for key in keys for place in flat[AT].get(key, ()))
    most = flat.get("maxLength", "")
    scope.narrow(places, "rewritten: a pattern, without valid characters that need a backslash")
    text = f"^{_PLAIN}{{{flat.get('minLength', 0)},{most}}}$"
    return put(without(flat, *keys), "pattern", text, places)
