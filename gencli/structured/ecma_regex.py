"""ECMA-262 patterns: read as trees for masks, and run by the `regex` package, whose searches can be timed.
If ECMA-262, Python and Rust read a class differently, the tree has the characters on which all agree,
and in what must not match the characters of all, so a mask made from the tree never allows a text that
one of them rejects. Constructs outside ECMA-262 are rejected, except (?i) and (?P<name>...).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Never

from gencli.structured.grammar_tree import (
    ANY,
    EMPTY,
    QUANTIFIERS,
    TOP,
    Alt,
    Anchor,
    Chars,
    Lookaround,
    Node,
    Ranges,
    RegexError,
    Repeat,
    Seq,
    alt,
    chars,
    code_point,
    drop_surrogates,
    invert_ranges,
    join_ranges,
    mapped,
    parts,
    range_text,
    seq,
    walk,
)

_SPACE_RANGES: Ranges = ((0x09, 0x0D), (0x20, 0x20))
# The ASCII part of \d, \w and \s, on which ECMA-262, Python, Rust and xgrammar agree.
SHORTHANDS: dict[str, Ranges] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": _SPACE_RANGES,
}
WHITE_SPACE: Ranges = (  # \s of ECMA-262
    *(*_SPACE_RANGES, (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)

_H = "[0-9a-fA-F]"
_CHARACTER = (
    rf"u\{{{_H}{{1,6}}\}}|u[dD][89abAB]{_H}{{2}}\\u[dD][c-fC-F]{_H}{{2}}|u{_H}{{4}}|x{_H}{{2}}"
    r"|c[A-Za-z]|[pP]\{[\w=]+\}"
)
_TOKEN = re.compile(
    r"(?P<class>\[\^?(?:\\.|[^\]\\])*\])"
    rf"|\\(?P<escape>{_CHARACTER}|k<\w+>|[1-9][0-9]*|.)"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>[0-9]+),?(?P<most>[0-9]*)\})\??)"
    r"|(?P<open>\((?:\?(?::|=|!|<=|<!|P?<\w+>|i:))?)(?!\?)"
    r"|(?P<close>\))"
    r"|(?P<flags>\(\?i\))"
    r"|(?P<char>[^\\[(])",
    re.DOTALL,
)
_MEMBER = re.compile(rf"\\({_CHARACTER}|.)|(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a class.

    `span` is its range of code points; None for a set, whose escape is `name`, without the backslash.
    """

    span: tuple[int, int] | None
    name: str = ""


def tokens(pattern: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a pattern as matches; `lastgroup` is the kind. RegexError for any other text."""
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise RegexError(f"{pattern[at : at + 4]!r} at character {at + 1} is not in ECMA-262")
        yield token
        at = token.end()


def class_members(text: str) -> Iterator[Member]:
    """Yield the members of a class with this inside.

    A hyphen forms a range only between two characters. Before a set, as in [a-\\d], the hyphen is yielded
    with the name "-". Raises RegexError for a reversed range.
    """
    items = [_item(*member.groups("")) for member in _MEMBER.finditer(text)]
    at = 0
    while at < len(items):
        low = items[at]
        next_ = items[at + 1 : at + 3]
        if low.span is None or len(next_) < 2 or next_[0].name != "-":
            yield Member(low.span, "" if low.span else low.name)
            at += 1
        elif (high := next_[1]).span is None:
            yield Member(low.span)
            yield next_[0]
            at += 2
        else:
            if low.span > high.span:
                raise RegexError(f"the range {chr(low.span[0])}-{chr(high.span[0])} is backwards")
            yield Member((low.span[0], high.span[0]))
            at += 3


def _item(escape: str, char: str) -> Member:
    """Return one character or set; a hyphen without a backslash has the name "-"."""
    if not char and is_set(escape):
        return Member(None, escape)
    code = ord(char) if char else 8 if escape == "b" else code_of(escape)
    return Member((code, code), "-" * (char == "-"))


def is_set(escape: str) -> bool:
    """Whether an escape, given without its backslash, is a shorthand or a property."""
    return escape.lower() in SHORTHANDS or (escape[0] in "pP" and len(escape) > 1)


def code_of(escape: str) -> int:
    """Return the code point of an escape, given without its backslash. RegexError if it has none."""
    if escape in _LETTERS:
        return ord(_LETTERS[escape])
    if escape[0] in "xu" and len(escape) > 1:
        codes = [int(code.strip("xu{}"), 16) for code in escape.split("\\")]
        if len(codes) == 2:
            return 0x10000 + ((codes[0] - 0xD800) << 10) + codes[1] - 0xDC00
        if codes[0] <= TOP:
            return codes[0]
    elif escape[0] == "c" and len(escape) == 2:
        return ord(escape[1]) % 32
    elif len(escape) == 1 and not escape.isalnum():
        return ord(escape)
    raise RegexError(f"\\{escape} is not in ECMA-262")


MAX_CHARACTERS = 20_000  # characters of a pattern; a longer one takes seconds to compile
MAX_NESTING = 100  # nesting of groups; the compiler needs some stack frames for each
MAX_REPEATS = 100_000  # counted repeats, nested ones multiplied; each takes memory
MAX_SEARCHES = 10_000  # searches of patterns in property names, before a run
MAX_SECONDS = 0.1  # seconds for one search

_SETS = {**SHORTHANDS, "s": WHITE_SPACE}
_LINE_TERMINATORS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def searches(pattern: str, text: str, seconds: float) -> bool:
    """Whether `pattern` matches anywhere in `text`. TimeoutError when that takes longer than `seconds`."""
    return _compiled(pattern).search(text, timeout=seconds) is not None


def may_match(patterns: Collection[str], names: Collection[str]) -> bool:
    """Whether a pattern matches, or possibly matches, one of the names."""
    if len(patterns) * len(names) > MAX_SEARCHES:
        return True
    try:
        return any(searches(pattern, name, MAX_SECONDS) for pattern in patterns for name in names)
    except (TimeoutError, ValueError):
        return True


def check_pattern(pattern: str) -> None:
    """Raise ValueError, with the reason, unless `pattern` is a regular expression."""
    _compiled(pattern)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped]

    if len(pattern) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(pattern)} characters, but the limit is {MAX_CHARACTERS}")
    text = _translated(pattern)
    try:
        return regex.compile(text, regex.VERSION0)
    except regex.error as error:
        raise ValueError(f"{error.msg} (as {text})" if len(text) < 200 else error.msg) from None
    except RecursionError:
        raise ValueError("its groups are nested too deep") from None


def _translated(pattern: str) -> str:
    texts: list[str] = []
    weights = [1]  # by open group: the largest number of repeats in it
    last = 1  # repeats of the part before a quantifier; 0 after a quantifier
    for token in tokens(pattern):
        texts.append(_token(token))
        if token["repeat"]:
            if not last:
                raise ValueError(f"there is nothing to repeat at character {token.start() + 1}")
            counts = [int(token[name]) for name in ("least", "most") if token[name]]
            weights[-1] = max(weights[-1], last * max([1, *counts]))
            if weights[-1] > MAX_REPEATS:
                raise ValueError(f"its counts make more than {MAX_REPEATS} repeats")
            last = 0
        elif token["close"] and len(weights) > 1:
            last = weights.pop()
            weights[-1] = max(weights[-1], last)
        elif not token["close"]:
            last = 1
            weights += [1] * bool(token["open"])
            if len(weights) > MAX_NESTING:
                raise ValueError(f"its groups are nested too deep, more than {MAX_NESTING}")
    return "".join(texts)


def _token(token: re.Match[str]) -> str:
    if token["class"]:
        return _class(token["class"])
    if token["escape"]:
        return _escape(token["escape"])
    if token[0] == ".":
        return f"[{range_text(invert_ranges(_LINE_TERMINATORS), _char)}]"
    return {"^": r"\A", "$": r"\Z", "{": r"\{", "}": r"\}", "]": r"\]"}.get(token[0], token[0])


def _escape(escape: str) -> str:
    if escape.isdigit() and escape != "0":
        return f"(?({escape})\\{escape}|)"  # a group without a match is empty
    if escape.startswith("k<"):
        return f"(?({escape[2:-1]})(?P={escape[2:-1]})|)"
    if escape in ("b", "B"):
        word = f"[{_set('w')}]"
        letter, other = f"(?={word})", f"(?!{word})"
        after, before = (other, letter) if escape == "b" else (letter, other)
        return f"(?:(?<={word}){after}|(?<!{word}){before})"
    if escape.lower() in _SETS:
        return f"[{_set(escape)}]"
    return f"\\{escape}" if escape[0] in "pP" and len(escape) > 1 else _char(code_of(escape))


def _class(text: str) -> str:
    is_negated = text.startswith("[^")
    inside = text[2 if is_negated else 1 : -1]
    if not inside:
        return "(?s:.)" if is_negated else "(?!)"
    members = class_members(inside)
    texts = (range_text((member.span,), _char) if member.span else _set(member.name) for member in members)
    return f"[{'^' if is_negated else ''}{''.join(texts)}]"


def _set(name: str) -> str:
    if name.lower() not in _SETS:
        return f"\\{name}"
    ranges = _SETS[name.lower()]
    return range_text(invert_ranges(ranges) if name.isupper() else ranges, _char)


def _char(code: int) -> str:
    return chr(code) if code < 0x80 and chr(code).isalnum() else f"\\U{code:08x}"


REST = Repeat(ANY, 0, None)
_MOST_NESTED = 50
_MOST_BRANCHES = 64  # limit of branches for a pattern with anchors in groups
_SPACES = "\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
# Characters that some dialects add to a shorthand.
_DISPUTED = {"d": r"\p{Nd}", "w": r"[\p{L}\p{N}]", "s": f"[{_SPACES}]"}
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
_NAMED = re.compile(r"\(\?P?<(\w+)>")


def parse_regex(text: str, *, is_refused: bool = False) -> Node:
    """Return the tree of a pattern; with `is_refused`, of one that must not match.

    Raises RegexError if it is invalid, or not regular: a back reference.
    """
    reader = _EcmaReader(text, is_refused)
    node = reader.read()
    if reader.open:
        raise RegexError(f"{text!r}: {reader.open[0]} is not regular")
    return node


def approximate(text: str) -> tuple[Node, list[str]]:
    """Return a tree that matches all texts of a pattern, and the parts of it that the tree does not enforce.

    Raises RegexError if the pattern is invalid.
    """
    reader = _EcmaReader(text)
    return reader.read(), list(dict.fromkeys(reader.open))


class _EcmaReader:
    def __init__(self, text: str, is_refused: bool = False) -> None:
        self._text, self._is_refused = text, is_refused
        self._tokens, self._at = list(tokens(text)), 0  # index of the next token
        self._ignores_case = any(token.lastgroup == "flags" for token in self._tokens)
        self._groups: list[Node | None] = []  # by number; None: not closed yet
        self._names: dict[str, int] = {}
        self.open: list[str] = []  # parts of which the tree matches too much

    def read(self) -> Node:
        node = self._alternatives(0)
        if self._at < len(self._tokens):
            self._fail("a ) that nothing opens", self._tokens[self._at].start())
        return node

    def _fail(self, fault: str, offset: int) -> Never:
        raise RegexError(f"{self._text!r} at {offset}: {fault}")

    def _take(self, *texts: str) -> bool:
        is_taken = self._at < len(self._tokens) and self._tokens[self._at][0] in texts
        self._at += is_taken
        return is_taken

    def _alternatives(self, depth: int) -> Node:
        if depth > _MOST_NESTED:
            self._fail(f"more than {_MOST_NESTED} groups in each other", self._tokens[self._at - 1].end())
        items = [self._sequence(depth)]
        while self._take("|"):
            items.append(self._sequence(depth))
        return alt(items)

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self._at < len(self._tokens) and (token := self._tokens[self._at])[0] not in ("|", ")"):
            if token.lastgroup != "repeat":
                items.append(self._atom(depth))
                continue
            if not items or self._tokens[self._at - 1].lastgroup == "repeat":
                offset = token.end() if items else token.start() + 1
                self._fail("a quantifier that quantifies nothing", offset)
            self._at += 1
            items.append(Repeat(items.pop(), *_bounds(token)))
        return seq(items)

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
        if token[0] == ".":
            return Chars(_LINE_TERMINATORS, True)
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
        return Lookaround(token[0][1:], body, text)

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
        group = self._groups[number] if 0 <= number < len(self._groups) else None
        if group is None:  # the group has not ended, so it has no text
            return EMPTY
        self.open.append(text)
        return alt([bare(group), EMPTY])

    def _class(self, token: re.Match[str]) -> Chars:
        is_negated = token[0].startswith("[^")
        members = list(class_members(token[0][1 + is_negated : -1]))
        spans = [member.span for member in members if member.span]
        return self._set([member.name for member in members if not member.span], spans, is_negated)

    def _set(self, names: list[str], spans: list[tuple[int, int]], is_negated: bool = False) -> Chars:
        """Return the characters of named sets and of ranges, or with `is_negated` all others."""
        ranges = list(spans)
        for name in names:
            ranges += _named_ranges(name, "i" * self._ignores_case, is_wide=is_negated != self._is_refused)
        if any(name.upper() in names and name in names for name in SHORTHANDS):
            ranges = [(0, TOP)]
        joined = join_ranges(ranges)
        if self._ignores_case:
            joined = without_case(joined)
        return chars(invert_ranges(joined) if is_negated else joined)


def _named_ranges(name: str, flags: str, *, is_wide: bool) -> Ranges:
    """Return the characters of a shorthand or a property; with `is_wide` those that any dialect has in it."""
    if name[0] in "pP":
        import regex

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
    return EMPTY if isinstance(node, Anchor | Lookaround) else mapped(node, bare)


def without_assertion(node: Node) -> tuple[Node, str]:
    """Return the tree without one of its assertions, and that as written; ("" if there is none).

    Lookarounds go first, the longest of them before others; then word boundaries; then all anchors.
    """

    def outer(part: Node) -> Iterator[Node]:  # the nodes that are in no lookaround
        yield part
        for below in parts(part) if not isinstance(part, Lookaround) else ():
            yield from outer(below)

    def dropped(part: Node, gone: Node) -> Node:
        if part == gone:
            return EMPTY
        return part if isinstance(part, Lookaround) else mapped(part, lambda below: dropped(below, gone))

    asserts = list(outer(node))
    if looks := [each for each in asserts if isinstance(each, Lookaround)]:
        look = max(looks, key=lambda each: len(each.text))
        return dropped(node, look), look.text
    anchors = [each for each in asserts if isinstance(each, Anchor)]
    for kind in (r"\b", r"\B"):
        if Anchor(kind) in anchors:
            return dropped(node, Anchor(kind)), kind
    return bare(node), " and ".join(dict.fromkeys(each.kind for each in anchors))


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
        branches = [branch for item in node.items for branch in _spread(item)]
    elif isinstance(node, Seq):
        branches = [()]
        for item in node.items:
            ways = _spread(item) if _has_asserts(item) else [(item,)]
            branches = [(*before, *way) for before in branches for way in ways]
            if len(branches) > _MOST_BRANCHES:
                break
    else:
        branches = [(node,)]
    if len(branches) > _MOST_BRANCHES:
        raise RegexError("too many branches with anchors")
    return branches


def _has_asserts(node: Node) -> bool:
    return any(isinstance(each, Anchor | Lookaround) for each in walk(node))


def _ends(branch: tuple[Node, ...]) -> list[Node]:
    """Return the trees of one branch without anchors; REST is added at an end without an anchor."""
    items = list(branch)
    is_start = items[:1] == [Anchor("^")]
    while items[:1] == [Anchor("^")]:
        del items[0]
    conditions = []
    while items and isinstance(look := items[0], Lookaround) and look.kind == "?=" and is_start:
        conditions.append(Seq((Anchor("^"), look.body)))
        del items[0]
    is_end = items[-1:] == [Anchor("$")]
    while items[-1:] == [Anchor("$")]:
        del items[-1]
    if any(_has_asserts(item) for item in items):
        raise RegexError("an anchor or a lookaround in the middle")
    body = Seq((*(() if is_start else (REST,)), *items, *(() if is_end else (REST,))))
    return [body, *(tree for condition in conditions for tree in whole(condition))]


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def has_case(letter: str) -> bool:
    """Return whether a letter also matches other characters if case is ignored."""
    return not letter == letter.lower() == letter.upper() == letter.title() == letter.casefold()


@lru_cache(maxsize=1024)
def chars_of(source: str, flags: str) -> Chars:
    """Return the characters that a class, escape, dot or letter matches under flags. Raises regex.error."""
    import regex

    if source[0] == "[":
        source = _ESCAPE.sub(lambda escape: _shorthand(escape[1]) or escape[0], source)
    elif source[0] == "\\" and (inside := _shorthand(source[1])):
        source, flags = f"[{inside}]", ""
    pattern = f"(?{flags}:{source})+" if flags else f"(?:{source})+"
    runs = regex.compile(pattern, regex.UNICODE | regex.V0).finditer(_all())
    return Chars(drop_surrogates(tuple((ord(run[0][0]), ord(run[0][-1])) for run in runs)))


@lru_cache(maxsize=1024)
def without_case(ranges: Ranges) -> Ranges:
    """Return the characters that match one of `ranges` if case is ignored."""
    import regex

    same = regex.compile(f"(?i:[{range_text(ranges, code_point)}])", regex.V0).findall(_cased())
    return join_ranges([*ranges, *((ord(char), ord(char)) for char in same)])


def _shorthand(letter: str) -> str:
    # The inside of its class, in ASCII as in JSON Schema; "" for other letters.
    ranges = SHORTHANDS.get(letter.lower(), ())
    return range_text(invert_ranges(ranges) if letter.isupper() else ranges, code_point) if ranges else ""


@lru_cache(maxsize=1)
def _all() -> str:
    return "".join(chr(code) for low, high in drop_surrogates(((0, TOP),)) for code in range(low, high + 1))


@lru_cache(maxsize=1)
def _cased() -> str:
    return "".join(filter(has_case, _all()))
