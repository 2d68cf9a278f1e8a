"""Rewriting of string and number keywords: lengths, patterns, bounds, and formats as patterns, if the
grammar of the format is regular and short. Sources: RFC 6901 (JSON pointer), the draft of relative JSON
pointers, RFC 3986 (URI reference), RFC 6531 (mail addresses, a safe subset), RFC 791 and 4291 (IP
addresses), RFC 3339 (dates and times, without leap seconds), RFC 1123 (host names, without those
reserved for Punycode).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import combinations
from math import ceil, floor

from gencli.structured.ecma_regex import REST, approximate, parse_regex, whole, without_assertion
from gencli.structured.flat_schema import ALSO, AT, SUPPORT, Flat, Scope, origins_of, put, without
from gencli.structured.grammar_tree import (
    TOP,
    Anchor,
    Lookaround,
    Node,
    Ranges,
    RegexError,
    Seq,
    literal,
    seq,
    show,
    within,
)
from gencli.structured.pattern_sets import (
    between,
    needs_escapes,
    pattern_forms,
    searched,
    texts_not_beginning,
)
from gencli.structured.schema_errors import GiveUp
from gencli.structured.schema_validator import FORMATS

_UNESCAPED = ((0x20, 0x21), (0x23, 0x5B), (0x5D, TOP))  # characters that JSON writes without a backslash
_PLAIN = r'[^"\\\x00-\x1f\x7f]'  # characters that JSON writes unescaped


def rewrite_string(flat: Flat, scope: Scope) -> Flat:
    """Return the flat schema with its string keywords rewritten."""
    flat = _ending(flat, scope)
    singles = [without(flat, ALSO), *flat.get(ALSO, ())]
    rewritten = [_pattern(_format(single, scope), scope) for single in singles]
    flat, *also = [part for whole in rewritten for part in [without(whole, ALSO), *whole.get(ALSO, ())]]
    also = [part for part in also if part.keys() - {AT}]
    if also and "pattern" not in flat and scope.backend == "xgrammar":
        flat, also = {**flat, **also[0], AT: {**flat[AT], **also[0][AT]}}, also[1:]
    flat = _length(flat, scope) if scope.backend == "xgrammar" else flat
    return {**flat, ALSO: also} if also else flat


def _ending(flat: Flat, scope: Scope) -> Flat:
    """Add a maximum length to a format without one, because its texts could be endless."""
    limit = LENGTHS.get(flat.get("format", ""))
    if limit is None or flat.keys() & {"maxLength", "pattern", ALSO} or flat.get("minLength", 0) > limit:
        return flat
    pointers = origins_of(flat, "format")
    if scope.backend == "xgrammar":  # xgrammar ignores a length next to a format
        scope.unbounded.update(pointers)
        return flat
    scope.note(pointers, f"rewritten: at most {limit:,} characters")
    return put(flat, "maxLength", limit, pointers)


def _format(flat: Flat, scope: Scope) -> Flat:
    name = flat.get("format")
    if SUPPORT[scope.backend].grade(f"format:{name}") == "exact" or name not in FORMATS:
        return flat
    if name not in PATTERNS or (scope.backend == "xgrammar" and "pattern" in flat):
        return flat
    pointers = origins_of(flat, "format")
    if name == "hostname":
        if scope.backend == "xgrammar":  # xgrammar ignores a length next to a pattern
            return flat
        flat = put(flat, "maxLength", min(flat.get("maxLength", HOST_LENGTH), HOST_LENGTH), pointers)
    scope.note(pointers, "rewritten: a pattern")
    flat = without(flat, "format")
    if "pattern" not in flat:
        return put(flat, "pattern", PATTERNS[name], pointers)
    return {**flat, ALSO: [*flat.get(ALSO, ()), {"pattern": PATTERNS[name], AT: {"pattern": pointers}}]}


def _pattern(flat: Flat, scope: Scope) -> Flat:
    if "pattern" not in flat or is_exact(flat["pattern"], scope):
        return flat
    pointers = origins_of(flat, "pattern")
    try:
        (first, *more), loose = _enforced(flat["pattern"], scope)
    except (RegexError, GiveUp) as error:
        scope.leave(pointers, f"a mask cannot express the pattern: {error}")
        return without(flat, "pattern")
    if loose:
        scope.leave(pointers, f"the mask enforces all of the pattern except {', '.join(loose)}")
    if scope.backend == "xgrammar" and needs_escapes(flat["pattern"]):
        scope.narrow(pointers, "rewritten: without valid characters that need a backslash")
    scope.note(pointers, "rewritten: anchored, with the characters that all readings share")
    also = [{"pattern": text, AT: {"pattern": pointers}} for text in more]
    return {**put(flat, "pattern", first), **({ALSO: [*flat.get(ALSO, ()), *also]} if also else {})}


def _enforced(text: str, scope: Scope) -> tuple[list[str], list[str]]:
    """Return anchored patterns that all have to match, and the parts of `text` that they do not enforce.

    A back reference becomes any text of its group. If the automaton of a pattern is too large, assertions are
    left out one by one.
    """
    node, loose = approximate(text)
    while True:
        scope.request.deadline.check()
        try:
            if scope.backend == "llguidance":
                with suppress(GiveUp):
                    return anchored_patterns(node), loose
            return [_single(node, _UNESCAPED)], loose  # xgrammar would write others as they are
        except (RegexError, GiveUp):
            node, part = without_assertion(node)
            if not part:
                raise
            loose.append(part)


def is_exact(pattern: str, scope: Scope) -> bool:
    """Whether the back end reads the pattern correctly."""
    grade = SUPPORT[scope.backend].grade
    return all(grade(f"pattern{form}") == "exact" for form in pattern_forms(pattern))


def anchored_patterns(node: Node) -> list[str]:
    """Return anchored patterns that all have to match: one, and one for each lookaround at the ends of it.

    Lookaheads (?!...) at the start become complements.
    """
    items = list(node.items) if isinstance(node, Seq) else [node]
    looks: list[Lookaround] = []
    for edge, at, is_behind in ((0, 1, False), (-1, -2, True)):
        while len(items) > 1 and items[edge] == Anchor("$" if is_behind else "^"):
            look = items[at]
            if not isinstance(look, Lookaround) or look.kind.startswith("?<") != is_behind:
                break
            looks.append(look)
            del items[at]
    return [_single(seq(items)), *map(_at_end, looks)]


def _at_end(look: Lookaround) -> str:
    """Return an anchored pattern of the texts at whose start, or end, a lookaround holds."""
    is_ahead = not look.kind.startswith("?<")
    tree = Seq((Anchor("^"), look.body) if is_ahead else (look.body, Anchor("$")))
    if look.kind.endswith("="):
        return _single(tree)
    if is_ahead:
        with suppress(GiveUp):
            return texts_not_beginning(look.body)
    return _satisfiable(between([REST], [_tree(tree)]))


def _single(node: Node, ranges: Ranges = ((0, TOP),)) -> str:
    """Return the one anchored pattern of a tree, for texts of these characters. Raises GiveUp."""
    trees = _trees(node)
    if ranges != ((0, TOP),):
        trees = [within(tree, ranges) for tree in trees]
    if len(trees) == 1:
        with suppress(RegexError):
            return f"^(?:{show(trees[0])})$"
    return _satisfiable(between(trees, ()))


def _satisfiable(text: str | None) -> str:
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
    # They all match a whole text if and only if the pattern matches in it.
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
    pointers = origins_of(flat, *keys)
    scope.narrow(pointers, "rewritten: a pattern, without valid characters that need a backslash")
    text = f"^{_PLAIN}{{{flat.get('minLength', 0)},{flat.get('maxLength', '')}}}$"
    return put(without(flat, *keys), "pattern", text, pointers)


_HALF_RANGE = 1 << 63
_MOST = 10**18 - 1
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def rewrite_number(flat: Flat, scope: Scope) -> Flat:
    """Return the flat schema with its number keywords rewritten."""
    kinds = flat.get("type")
    step = flat.get("multipleOf")
    if kinds == ["number"] and step is not None and step == int(step):
        scope.note(origins_of(flat, "multipleOf"), "rewritten: whole numbers")
        flat = put(put(flat, "type", ["integer"]), "multipleOf", int(step))
    if flat.get("type") != ["integer"] or not any(key in flat for key in _BOUNDS):
        return flat
    return _readable(_whole_bounds(flat), scope)


def _readable(flat: Flat, scope: Scope) -> Flat:
    """Replace bounds beyond 64 bits by bounds of 18 digits, or remove them."""
    margin = 2 if scope.backend == "llguidance" else 0  # which reads bounds as floats
    readable = range(margin - _HALF_RANGE, _HALF_RANGE - margin // 2)
    for keyword, side in (("minimum", -1), ("maximum", 1)):
        bound = flat.get(keyword)
        if bound is None or bound in readable:
            continue
        pointers = origins_of(flat, keyword)
        if bound * side > 0:
            scope.narrow(pointers, "rewritten: whole numbers of at most 18 digits")
            flat = put(flat, keyword, side * _MOST, pointers)
        else:
            scope.leave(pointers, f"{scope.backend} reads no bounds beyond 64 bits")
            flat = without(flat, keyword)
    return flat


def _whole_bounds(flat: Flat) -> Flat:
    """Return the schema with inclusive integer bounds."""
    for keyword, plain, side in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bounds = []
        if keyword in flat:
            bounds.append(floor(flat[keyword]) + 1 if side > 0 else ceil(flat[keyword]) - 1)
        if plain in flat:
            bounds.append(ceil(flat[plain]) if side > 0 else floor(flat[plain]))
        if bounds:
            pointers = origins_of(flat, keyword)
            flat = put(without(flat, keyword), plain, max(bounds) if side > 0 else min(bounds), pointers)
    return flat


# Nested repetitions are avoided where possible: xgrammar 0.2.8 reads some of them wrongly.

HOST_LENGTH = 253
# Maximum lengths of texts in formats without one: RFC 5321 for mail; for web addresses the limit of browsers
# and servers, so that no real one is cut; a duration with nine digits in each place.
LENGTHS = {
    **dict.fromkeys(("email", "idn-email"), 254),
    **dict.fromkeys(("uri", "uri-reference", "json-pointer", "relative-json-pointer"), 2_048),
    "duration": 63,
}

_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_H = "[0-9A-Fa-f]{1,4}"
_URI = r"(?:[A-Za-z0-9_.~!$&'()*+,;=\-]|%[0-9A-Fa-f]{2})"
_SIGN = rf"(?:[:@]|{_URI})"
_HOST = rf"//(?:(?:{_URI}|:)*@)?{_URI}*(?::[0-9]*)?(?:/{_SIGN}*)*"
_PATH = rf"(?:{_HOST}|/(?:{_SIGN}+(?:/{_SIGN}*)*)?)"
_TAIL = rf"(?:\?(?:[/?]|{_SIGN})*)?(?:#(?:[/?]|{_SIGN})*)?"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:{_YEAR}-{_DAY}|{_LEAP}-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]{{1,9}}|)(?:Z|[+\-]{_HOUR})"  # nanoseconds
_L, _M = "[A-Za-z0-9]", r"[A-Za-z0-9\-]"
_LABEL = f"(?:{_L}|{_L}{_L}|{_L}{_M}{_L}|{_L}{_M}{_M}{_L}|{_L}{_M}(?:{_L}{_M}|-{_L}){_M}{{0,58}}{_L})"
# Of host names beyond ASCII only those with short Latin labels, which are certainly valid.
_WORD = f"(?:{_LABEL}|[a-z0-9ß-öø-ÿ]{{1,16}})"
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\ud7ff\-]"

_IPV4 = r"\.".join([_BYTE] * 4)
_LAST = f"(?:{_H}:{_H}|{_IPV4})"  # the last 32 bits


def _ipv6() -> str:
    """Return the nine forms of RFC 3986: eight groups, or fewer around one ::."""
    forms = [f"(?:{_H}:){{6}}{_LAST}", f"::(?:{_H}:){{5}}{_LAST}"]
    for count in range(7):
        before = f"(?:{_H}(?::{_H}){{0,{count}}})?" if count else f"(?:{_H})?"
        after = f"(?:{_H}:){{{4 - count}}}{_LAST}" if count < 4 else (_LAST, _H, "")[count - 4]
        forms.append(f"{before}::{after}")
    return "|".join(forms)


PATTERNS: dict[str, str] = {
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "uri-reference": rf"^(?:[A-Za-z][A-Za-z0-9+.\-]*:(?:{_PATH}|{_SIGN}+(?:/{_SIGN}*)*)?"
    rf"|{_PATH}|(?:@|{_URI})+(?:/{_SIGN}*)*)?{_TAIL}$",
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL})*$",
    "idn-email": rf"^{_LOCAL}+(?:\.{_LOCAL}+)*@{_WORD}(?:\.{_WORD}){{0,2}}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^(?:{_ipv6()})$",
}
