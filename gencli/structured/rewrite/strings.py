"""Rewriting of string keywords: lengths, patterns, formats."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import combinations

from gencli.structured.audit.pattern_forms import pattern_forms
from gencli.structured.audit.support import SUPPORT
from gencli.structured.errors import GiveUp
from gencli.structured.regex.automaton import between
from gencli.structured.regex.ecma_reader import parse_regex, whole
from gencli.structured.regex.printer import show
from gencli.structured.regex.tree import Anchor, Look, Node, RegexError, Seq, literal
from gencli.structured.regex.words import texts_not_beginning
from gencli.structured.rewrite.formats import HOST_LENGTH, LENGTHS, PATTERNS
from gencli.structured.rewrite.node import ALSO, AT, Flat, Scope, put, without
from gencli.structured.schema.formats import FORMATS

__all__ = ["are_apart", "is_exact", "rewrite_string", "safe_patterns", "single_pattern"]

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
        first, *more = _safe(flat["pattern"], scope)
    except (RegexError, GiveUp) as error:
        scope.leave(places, f"the pattern cannot be said in a mask: {error}")
        return without(flat, "pattern")
    scope.note(places, "rewritten: anchored, with the characters that all readings share")
    flat = put(flat, "pattern", first)
    if not more:
        return flat
    also = [{"pattern": text, AT: {"pattern": places}} for text in more]
    return {**flat, ALSO: [*flat.get(ALSO, ()), *also]}


def _safe(text: str, scope: Scope) -> list[str]:
    """Return anchored patterns as `safe_patterns`; for xgrammar, which takes one only, a single pattern."""
    if scope.backend == "xgrammar":
        with suppress(GiveUp):
            if (found := single_pattern([text])) is not None:
                return [found]
    return safe_patterns(text)


def is_exact(pattern: str, scope: Scope) -> bool:
    """Whether the back end reads the pattern correctly."""
    return all(_grade(f"pattern{form}", scope) == "exact" for form in pattern_forms(pattern))


def safe_patterns(text: str) -> list[str]:
    """Return anchored patterns that all have to match; lookaheads (?!...) at the start become complements."""
    wanted, refused = _parts(text)
    return [*(f"^(?:{show(tree)})$" for tree in wanted), *map(texts_not_beginning, refused)]


def single_pattern(texts: Iterable[str], but: Iterable[str] = (), words: Iterable[str] = ()) -> str | None:
    """Return one anchored pattern of the texts that match all `texts` and no `but`, and are none of `words`.

    Returns None if no text is left. Raises GiveUp or RegexError if there is no such pattern.
    """
    wanted: list[Node] = []
    refused: list[Node] = []
    for text in texts:
        trees, heads = _parts(text)
        wanted.extend(trees)
        refused.extend(tree for head in heads for tree in whole(Seq((Anchor("^"), head))))
    for text in but:
        trees, heads = _parts(text)
        if heads or len(trees) > 1:
            raise GiveUp("the complement of a pattern with lookaheads")
        refused.extend(trees)
    refused.extend(map(literal, words))
    if len(wanted) == 1 and not refused:
        return f"^(?:{show(wanted[0])})$"
    return between(wanted, refused)


@lru_cache(maxsize=1024)
def are_apart(texts: tuple[str, ...]) -> bool:
    """Whether certainly no text matches two of the patterns."""
    try:
        return all(single_pattern(pair) is None for pair in combinations(texts, 2))
    except (GiveUp, RegexError):
        return False


def _parts(text: str) -> tuple[list[Node], list[Node]]:
    """Return trees that have to match the whole text, and trees that must not match at its beginning."""
    node = parse_regex(text)
    items = list(node.items) if isinstance(node, Seq) else [node]
    refused: list[Node] = []
    at = 1
    while items[:1] == [Anchor("^")] and at < len(items) and isinstance(look := items[at], Look):
        if look.kind == "?!":
            refused.append(look.body)
            del items[at]
        else:
            at += 1
    return whole(Seq(tuple(items))), refused


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
