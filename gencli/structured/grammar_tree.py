"""The nodes of regular expressions and grammars, for all notations; their checks and printers.

Patterns are printed as text that Rust's regex, xgrammar and the `regex` package read alike: without flags
and anchors. Grammars are written as xgrammar's EBNF and as llguidance's Lark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from gencli.errors import ConfigError
from processors.errors import nearest

Ranges = tuple[tuple[int, int], ...]  # ranges of code points, both ends inclusive

TOP = 0x10FFFF
MOST_REPEATS = 100_000  # limit of a counted repeat in a regex or grammar for outputs
QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SURROGATES = (0xD800, 0xDFFF)


class RegexError(ValueError):
    """A pattern that is invalid, or outside the reader's dialect."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of `ranges`; with `negated` any character outside them."""

    ranges: Ranges
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    """A concatenation of the items; the empty text without items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """An alternation of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition: at least `least` times, at most `most` times (None: no limit)."""

    body: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor as written, such as ^; `offset` is its position in the pattern."""

    kind: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A lookaround; `kind` is the text that opens it, such as ?=; `text` is all of it as written."""

    kind: str
    body: Node
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule of a grammar by its name; `offset` is the position of the name in the grammar."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text that only the back end interprets."""

    text: str


Node = Chars | Seq | Alt | Repeat | Anchor | Lookaround | Ref | Verbatim
EMPTY = Seq(())


def single(code: int) -> Chars:
    return Chars(((code, code),))


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """Return the node of some code points; written as the complement if they have the last one.

    Surrogates, which no text has, are added or left out as it is shorter to write.
    """
    joined = join_ranges(ranges)
    if not joined or joined[-1][1] < TOP:
        return Chars(drop_surrogates(joined))
    joined = join_ranges([*joined, _SURROGATES])
    return Chars(joined) if joined == ((0, TOP),) else Chars(invert_ranges(joined), True)


def within(node: Node, ranges: Ranges) -> Node:
    """Return the tree for texts that have only characters of `ranges`."""
    if not isinstance(node, Chars):
        return mapped(node, lambda part: within(part, ranges))
    outside = node.ranges if node.negated else invert_ranges(node.ranges)
    return chars(invert_ranges(join_ranges([*outside, *invert_ranges(ranges)])))


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with `change` applied to each of its parts."""
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(map(change, node.items)))
    return replace(node, body=change(node.body)) if isinstance(node, Repeat | Lookaround) else node


def literal(text: str) -> Seq:
    return Seq(tuple(single(ord(char)) for char in text))


def seq(items: Sequence[Node]) -> Node:
    return items[0] if len(items) == 1 else Seq(tuple(items))


def alt(items: Sequence[Node]) -> Node:
    return items[0] if len(items) == 1 else Alt(tuple(items))


def bounds_fault(count: str, least: int, most: int | None) -> str:
    """Return the reason why the bounds of a counted repeat are invalid; "" if they are valid."""
    if max(least, most or 0) > MOST_REPEATS:
        return f"{count} repeats more than {MOST_REPEATS} times"
    return f"{count} has a minimum above its maximum" if most is not None and least > most else ""


def parts(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Seq | Alt):
        return node.items
    return (node.body,) if isinstance(node, Repeat | Lookaround) else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, from left to right."""
    stack = [node]
    while stack:
        yield (here := stack.pop())
        stack.extend(reversed(parts(here)))


def has_letters(node: Node, rule_test: Callable[[str], bool] = lambda name: False) -> bool:
    """Whether a node matches a non-empty text; `rule_test` returns this for a rule by name."""
    if isinstance(node, Ref):
        return rule_test(node.name)
    if isinstance(node, Repeat) and node.most == 0:
        return False
    return isinstance(node, Chars | Verbatim) or any(has_letters(part, rule_test) for part in parts(node))


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same code points in ascending ranges that neither overlap nor touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def invert_ranges(ranges: Ranges) -> Ranges:
    """Return all other code points; `ranges` in the form that `join_ranges` returns."""
    starts = [0, *(high + 1 for _, high in ranges)]
    ends = [*(low - 1 for low, _ in ranges), TOP]
    return tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high)


def drop_surrogates(ranges: Ranges) -> Ranges:
    """Return the same code points without surrogates."""
    first, last = _SURROGATES
    halves = [
        half for low, high in ranges for half in ((low, min(high, first - 1)), (max(low, last + 1), high))
    ]
    return join_ranges(half for half in halves if half[0] <= half[1])


ANY = Chars(((0, TOP),))
_MARKS = {bounds: mark for mark, bounds in QUANTIFIERS.items()}


@dataclass(frozen=True, slots=True)
class Style:
    """A notation of code points; with `has_exact_counts` a repeat {2,2} is written {2}."""

    code: Callable[[int], str]
    has_exact_counts: bool


def show(node: Node, style: Style | None = None) -> str:
    """Return the text of a tree, by default in the style PLAIN.

    Raises RegexError for an anchor, a lookaround, an empty class, and in the style PLAIN for a surrogate.
    """
    style = style or PLAIN
    if isinstance(node, Chars):
        return class_text(node, style.code)
    if isinstance(node, Seq):
        return "".join(
            f"(?:{show(item, style)})" if isinstance(item, Alt) else show(item, style) for item in node.items
        )
    if isinstance(node, Alt):
        return "|".join(show(item, style) for item in node.items)
    if isinstance(node, Repeat):
        body = show(node.body, style)
        return (body if isinstance(node.body, Chars) else f"(?:{body})") + count_text(node, style)
    raise RegexError("an anchor or a lookaround in the middle")


def class_text(chars: Chars, code: Callable[[int], str]) -> str:
    """Return a class, or the character if there is only one."""
    if chars == ANY:
        return r"(?:.|\n)"
    ranges = chars.ranges
    if not ranges:
        raise RegexError("a class without characters")
    if not chars.negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        char = code(ranges[0][0])
        return char if ranges[0][0] else f"[{char}{char}]"  # xgrammar 0.2.9 drops a NUL that stands alone
    return f"[{'^' if chars.negated else ''}{range_text(ranges, code)}]"


def range_text(ranges: Ranges, code: Callable[[int], str]) -> str:
    return "".join(code(low) if low == high else f"{code(low)}-{code(high)}" for low, high in ranges)


def count_text(node: Repeat, style: Style) -> str:
    if mark := _MARKS.get((node.least, node.most)):
        return mark
    if node.least == node.most and style.has_exact_counts:
        return f"{{{node.least}}}"
    return f"{{{node.least},{'' if node.most is None else node.most}}}"


def code_point(code: int) -> str:
    """Return an ASCII letter or digit unchanged, another character as \\uXXXX or \\UXXXXXXXX."""
    if code < 0x80 and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _readable(code: int) -> str:
    """Return a character unchanged if it has no special meaning, otherwise escaped."""
    char = chr(code)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\x{code:02x}"
    if 0xD800 <= code < 0xE000:
        raise RegexError("half a surrogate pair")
    return char if char.isalnum() or code > 0x7F or char in " _" else "\\" + char


PLAIN = Style(_readable, has_exact_counts=True)
ESCAPED = Style(code_point, has_exact_counts=False)

_RuleTest = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """The node of a rule, its offset in the grammar, and its options as text."""

    node: Node
    offset: int
    options: str = ""


def line_and_column(text: str, offset: int) -> str:
    """Return the line and column of an offset, counted from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def check_rules(text: str, rules: dict[str, Rule], root: str) -> None:
    """Raise ConfigError for a missing or empty root, an undefined rule, or one that matches no text."""
    if root not in rules:
        message = f"The grammar has no rule {root!r}, where it would begin."
        raise ConfigError(message, hint=nearest(root, rules))
    for ref in (ref for rule in rules.values() for ref in _refs(rule.node)):
        if ref.name not in rules:
            where = line_and_column(text, ref.offset)
            message = f"There is no rule {ref.name!r}, named at {where} of the grammar."
            raise ConfigError(message, hint=nearest(ref.name, rules))
    reachable, waiting = {root: None}, [root]
    while waiting:
        refs = _refs(rules[waiting.pop()].node)
        names = dict.fromkeys(ref.name for ref in refs if ref.name not in reachable)
        reachable |= names
        waiting += names
    ending = _closure(rules, partial(_can_match, with_letters=True))
    for name in reachable:
        if name not in ending:
            where = line_and_column(text, rules[name].offset)
            what = f"Rule {name!r}, at {where} of the grammar, can never come to an end."
            raise ConfigError(what, hint="Give it an alternative that does not need the rule itself.")
    if root not in _closure(rules, has_letters):
        raise ConfigError(f"Rule {root!r} of the grammar allows nothing but the empty text.")


def refuse_left_recursion(text: str, rules: dict[str, Rule]) -> None:
    """Raise ConfigError for left recursion, direct or through other rules."""
    empty = _closure(rules, _can_match)
    graph = {name: set(_first_refs(rule.node, empty.__contains__)) for name, rule in rules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names = list(reversed(error.args[1]))
        path = " -> ".join(names if len(names) <= 8 else [*names[:4], "...", *names[-3:]])
        where = line_and_column(text, rules[names[0]].offset)
        message = f"Rule {names[0]!r}, at {where} of the grammar, is left-recursive ({path})."
        hint = 'Write a repetition: instead of  a ::= a "x" | "y"  write  a ::= "y" "x"*'
        raise ConfigError(message, hint=hint) from None


def find_recursion(rules: dict[str, Rule]) -> bool:
    """Whether any rule refers to itself, directly or through other rules."""
    try:
        TopologicalSorter({n: {ref.name for ref in _refs(rule.node)} for n, rule in rules.items()}).prepare()
        return False
    except CycleError:
        return True


def _refs(node: Node) -> Iterator[Ref]:
    return (below for below in walk(node) if isinstance(below, Ref))


def _closure(rules: dict[str, Rule], holds: Callable[[Node, _RuleTest], bool]) -> set[str]:
    """Return the names of the rules for which `holds` is true; the smallest fixed point."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, rule in rules.items():
        for ref in _refs(rule.node):
            users[ref.name].add(name)
    names: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in names and holds(rules[name].node, names.__contains__):
            names.add(name)
            waiting += users[name] - names
    return names


def _can_match(node: Node, rule_test: _RuleTest, *, with_letters: bool = False) -> bool:
    """Whether the empty text matches; with `with_letters` whether some finite text does."""
    if isinstance(node, Ref):
        return rule_test(node.name)
    if isinstance(node, Chars | Verbatim):
        return with_letters
    below_it = (_can_match(item, rule_test, with_letters=with_letters) for item in parts(node))
    if isinstance(node, Alt):
        return any(below_it)
    return (isinstance(node, Repeat) and node.least == 0) or all(below_it)


def _first_refs(node: Node, empty: _RuleTest) -> Iterator[str]:
    """Yield the rules with which a text of the node may begin."""
    if isinstance(node, Ref):
        yield node.name
    for item in parts(node):
        yield from _first_refs(item, empty)
        if isinstance(node, Seq) and not _can_match(item, empty):
            return


def ebnf_text(rules: dict[str, Rule], root: str) -> str:
    """Return the rules in xgrammar's notation.

    All names except the root get the prefix `r-`, because a name may be neither a digit nor `true`.
    """
    names = {name: name if name == root else f"r-{name}" for name in rules}
    write = _GrammarWriter(names, is_lark=False).write
    return "".join(f"{names[name]} ::= {write(rule.node)}\n" for name, rule in rules.items())


def lark_text(rules: dict[str, Rule], root: str) -> str:
    """Return the rules in llguidance's notation.

    llguidance's lexer only takes the longest match of a terminal. So a grammar without recursion becomes one
    terminal; in other grammars each character is a terminal.
    """
    prefix = "rule_" if find_recursion(rules) else "RULE_"
    names = {name: f"{prefix}{number}" for number, name in enumerate(rules)}
    write = _GrammarWriter(names, is_lark=True).write
    lines = (f"{names[name]}: {write(rule.node)}\n" for name, rule in rules.items())
    return f"start: {names[root]}\n" + "".join(lines)


@dataclass(frozen=True, slots=True)
class _GrammarWriter:
    names: dict[str, str]
    is_lark: bool

    def write(self, node: Node) -> str:
        """Return a node as text; the caller adds brackets if needed."""
        if isinstance(node, Chars):
            text = class_text(node, code_point)
            return f"/{text}/" if self.is_lark else text if text.startswith("[") else f"[{text}]"
        if isinstance(node, Ref):
            return self.names[node.name]
        if isinstance(node, Alt):
            return " | ".join(map(self.write, node.items))
        if isinstance(node, Seq):
            return " ".join(self._items(node)) or '""'
        assert isinstance(node, Repeat)
        return f"({self.write(node.body)}){count_text(node, ESCAPED)}"

    def _items(self, node: Seq) -> Iterator[str]:
        for is_letter, run in groupby(node.items, key=_is_letter):
            if is_letter and not self.is_lark:
                letters = (code_point(item.ranges[0][0]) for item in run if isinstance(item, Chars))
                yield f'"{"".join(letters)}"'
            else:
                for item in run:
                    yield f"({self.write(item)})" if isinstance(item, Alt) else self.write(item)


def _is_letter(node: Node) -> bool:
    """Whether a node is one character, but NUL, which is written as a class."""
    return isinstance(node, Chars) and 0 < node.ranges[0][0] == node.ranges[-1][1]
