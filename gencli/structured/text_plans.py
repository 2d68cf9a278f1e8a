"""Plans for outputs that are checked as text: choices, regular expressions, grammars; and the reader of
such expressions. An expression matches the whole output, in a dialect that the `regex` package and both
back ends support; both get it with its classes written out, since they interpret a dot, \\w, \\s, a
brace and a class differently. Constructs that a back end cannot enforce are rejected by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex  # type: ignore[import-untyped]

from gencli.errors import ConfigError
from gencli.helpers import shortened
from gencli.structured.ecma_regex import chars_of, has_case
from gencli.structured.grammar_readers import read_grammar, read_lark
from gencli.structured.grammar_tree import (
    EMPTY,
    ESCAPED,
    QUANTIFIERS,
    Alt,
    Anchor,
    Chars,
    Node,
    Repeat,
    Seq,
    alt,
    bounds_fault,
    check_rules,
    ebnf_text,
    has_letters,
    lark_text,
    mapped,
    refuse_left_recursion,
    seq,
    show,
    single,
)
from gencli.structured.output_spec import Audit, KeywordFinding, Plan, TextCheck, Variant
from processors.request_values import Constraint

_SECONDS = 10.0
_MOST_RULES = 500
_MOST_SAID = 200  # characters shown of llguidance's error, which may quote the grammar


@dataclass(frozen=True, slots=True)
class ChoiceCheck(TextCheck):
    """Checks that the finished text is one of the choices."""

    choices: tuple[str, ...]

    def faults(self, text: str) -> tuple[str, ...]:
        return () if text in self.choices else (f"{text!r} is none of the {len(self.choices)} choices.",)


def plan_choices(choices: Sequence[str]) -> Plan:
    """Return the plan for an output that is one of these texts. One may be a prefix of another.

    Raises ConfigError if there is no choice, or if one is empty, duplicated, or not a text.
    """
    if not choices:
        hint = "Give at least one, better two: `choice` = yes `choice` = no."
        raise ConfigError("There is no choice.", hint=hint)
    seen: set[str] = set()
    for number, choice in enumerate(choices, start=1):
        if not isinstance(choice, str):
            raise ConfigError(f"Choice {number} is {choice!r}, which is no text.", hint="Put it into quotes.")
        if not choice:
            raise ConfigError(f"Choice {number} is empty.", hint="An output has at least one character.")
        if choice in seen:
            raise ConfigError(f"Choice {number} is {choice!r}, like an earlier one.", hint="Give each once.")
        if not choice.isascii() and any("\ud800" <= letter <= "\udfff" for letter in choice):
            raise ConfigError(f"Choice {number} is {choice!r}, which is not valid UTF-8.")
        seen.add(choice)
    constraint = Constraint("choice", json.dumps(list(choices)), "trie")
    check = ChoiceCheck(tuple(choices))
    return Plan((Variant(constraint, Audit("trie")),), "A list of texts needs no grammar.", check=check)


@dataclass(frozen=True, slots=True)
class RegexCheck(TextCheck):
    """Matches the finished text against the pattern with its classes written out."""

    pattern: str
    written: str

    def faults(self, text: str) -> tuple[str, ...]:
        """Return a fault unless the whole text matches within ten seconds."""
        try:
            matches = _compiled(self.written).fullmatch(text, timeout=_SECONDS)
        except TimeoutError:
            return (f"The regex {self.pattern!r} could not be checked in {_SECONDS:g} s.",)
        return () if matches else (f"The text does not match the regex {self.pattern!r}.",)


def plan_regex(pattern: str) -> Plan:
    """Return the plan of a regular expression. Raises ConfigError for constructs no back end can enforce."""
    node = read_regex(pattern)
    if not has_letters(node):
        raise ConfigError(f"The regex {pattern!r} allows nothing but the empty text.")
    text = show(node, ESCAPED)
    shown = text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
    notes = () if text == pattern else (KeywordFinding("", "regex", "mask", f"Written out as {shown}"),)
    backends = ("xgrammar", "llguidance")
    variants = tuple(Variant(Constraint("regex", text, name), Audit(name, notes)) for name in backends)
    return Plan(variants, "Both back ends enforce all of it.", check=RegexCheck(pattern, text))


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern, regex.V0)


def plan_grammar(text: str) -> Plan:
    """Return the plan of a grammar whose root is `root`.

    GBNF is rewritten for both back ends; a grammar with features of xgrammar goes to xgrammar unchanged.
    Raises ConfigError with line and column for syntax errors, undefined rules, rules without a finite text,
    and left recursion.
    """
    grammar = read_grammar(text)
    check_rules(text, grammar.rules, "root")
    refuse_left_recursion(text, grammar.rules)
    if grammar.dialect == "xgrammar":
        native = Variant(Constraint("ebnf", text, "xgrammar"), Audit("xgrammar"))
        return Plan((native,), "The grammar is in xgrammar's EBNF, which no other back end reads.")
    note = KeywordFinding("", "grammar", "mask", "Read as GBNF and rewritten")
    ebnf = Constraint("ebnf", ebnf_text(grammar.rules, "root"), "xgrammar")
    lark = Constraint("lark", lark_text(grammar.rules, "root"), "llguidance")
    variants = tuple(Variant(each, Audit(each.backend, (note,))) for each in (ebnf, lark))
    return Plan(variants, "The grammar is GBNF. Both back ends enforce all of it.")


def plan_lark(text: str) -> Plan:
    """Return the plan of a grammar in llguidance's Lark, which begins at `start`.

    xgrammar reads nearly the same notation, but its terminals may match less, so it is not used. Raises
    ConfigError with line and column for features that llguidance lacks.
    """
    rules = read_lark(text)
    check_rules(text, rules, "start")
    # llguidance recurses over rules on the stack; large grammars are tried later, in a child process.
    fault = _llguidance_fault(text) if len(rules) <= _MOST_RULES else ""
    if fault:
        raise ConfigError(f"llguidance rejects the Lark grammar: {fault}.")
    variant = Variant(Constraint("lark", text, "llguidance"), Audit("llguidance"))
    return Plan((variant,), "The grammar is in llguidance's Lark.")


def _llguidance_fault(text: str) -> str:
    """Return llguidance's own error in one line; "" if it accepts the grammar."""
    from llguidance import LLMatcher

    fault = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text))
    first = re.split(r"\n|⟦", fault)[0].strip().rstrip(".")
    if len(first) > _MOST_SAID:
        first = f"{first[:_MOST_SAID]} ..."
    return re.sub(r"^(?:at )?(\d+)\((\d+)\)", r"line \1, column \2", first)


MOST_LETTERS = 10_000
MOST_NESTED = 100

_COUNT = re.compile(r"\{(?:(\d+)|(\d*),(\d*))\}")
_HEX = {"x": 2, "u": 4, "U": 8}
_START = ("^", "\\A")
_SET_OPERATORS = ("--", "&&", "||", "~~")
_GROUPS = {
    "(?=": "a lookahead",
    "(?!": "a negative lookahead",
    "(?<=": "a lookbehind",
    "(?<!": "a negative lookbehind",
    "(?>": "an atomic group",
    "(?P=": "a backreference",
    **dict.fromkeys(("(?P>", "(?P&", "(?&"), "a call of a group"),
    "(?R": "recursion",
    "(?(": "a conditional",
    "(?|": "a branch reset",
    "(*": "a control verb",
}
_ESCAPES = {
    **dict.fromkeys("bBmM", "a word boundary"),
    "G": "a search anchor",
    "K": "a match reset",
    "X": "a grapheme",
    "R": "a line break of any kind",
    "L": "a named list",
    **dict.fromkeys("gk123456789", "a backreference"),
}


def read_regex(pattern: str) -> Node:
    """Return the tree of a pattern that has to match the whole text.

    Raises ConfigError, with the column, for constructs that a back end cannot enforce.
    """
    if len(pattern) > MOST_LETTERS:
        raise ConfigError(f"The regex has {len(pattern)} characters; at most {MOST_LETTERS} are read.")
    return _RegexReader(pattern).read()


class _RegexReader:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def read(self) -> Node:
        flags = ""
        while match := re.compile(r"\(\?([a-z]+)\)").match(self.pattern, self.at):
            flags = self._flags(match[1], "", flags)
            self.at = match.end()
        node = self._strip(self._choice(flags), first=True, last=True)
        if self.at < len(self.pattern):
            raise self._fail("There is no group that ')' could close")
        return node

    def _fail(self, fault: str, column: int | None = None, hint: str = "") -> ConfigError:
        where = (self.at if column is None else column) + 1
        return ConfigError(
            f"{fault}, at column {where} of the regex {shortened(self.pattern, 60)!r}.", hint=hint
        )

    def _refuse(self, construct: str, text: str, column: int | None = None) -> ConfigError:
        return self._fail(f"No back end can enforce {construct} ({text})", column)

    def _looking_at(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def _flags(self, on: str, off: str, before: str) -> str:
        for flag in on + off:
            if flag not in "is":
                raise self._refuse("the inline flag", flag)
        return "".join(flag for flag in "is" if flag in on or (flag in before and flag not in off))

    def _choice(self, flags: str) -> Node:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self._fail(f"More than {MOST_NESTED} groups are inside one another")
        items = [self._sequence(flags)]
        while self._looking_at("|"):
            self.at += 1
            items.append(self._sequence(flags))
        self.depth -= 1
        return alt(items)

    def _sequence(self, flags: str) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self._repeated(self._item(flags)))
        return seq(items)

    def _repeated(self, item: Node) -> Node:
        start, bounds = self.at, self._bounds()
        if bounds is None:
            return item
        if isinstance(item, Anchor):
            raise self._fail(f"An anchor ({item.kind}) cannot be repeated", start)
        if self._looking_at("+"):
            raise self._refuse("a possessive quantifier", self.pattern[start : self.at + 1], start)
        if self._looking_at("?"):
            self.at += 1  # Laziness does not change which whole texts match.
        if self._bounds() is not None:
            raise self._fail("One quantifier follows another", start, "Put the inner one into (?:...).")
        return Repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read a quantifier and return its bounds; None if the next text is not a quantifier."""
        here = self.pattern[self.at : self.at + 1]
        if here in QUANTIFIERS:
            self.at += 1
            return QUANTIFIERS[here]
        count = _COUNT.match(self.pattern, self.at)
        if not count:
            return None
        limit = count[1] or count[3]
        bounds = int(count[1] or count[2] or 0), int(limit) if limit else None
        if fault := bounds_fault(count[0], *bounds):
            raise self._fail(fault)
        self.at = count.end()
        return bounds

    def _item(self, flags: str) -> Node:
        letter, column = self.pattern[self.at], self.at
        if letter == "(":
            return self._group(flags)
        if letter == "[":
            return self._class(flags)
        if letter == "\\":
            return self._escape(flags)
        if self._bounds() is not None:
            raise self._fail(f"There is nothing that {letter!r} could repeat", column)
        if letter == "{" and re.match(r"[\w,<>=]", self.pattern[self.at + 1 : self.at + 2]):
            raise self._fail("A brace that is no counted repeat", column, r"Write \{ for the character.")
        self.at += 1
        if letter in "^$":
            return Anchor(letter, column)
        if letter == "." or ("i" in flags and has_case(letter)):
            return self._ranges(letter if letter == "." else regex.escape(letter), flags, column)
        if "\ud800" <= letter <= "\udfff":
            raise self._fail("The pattern is not valid UTF-8", column)
        return single(ord(letter))

    def _ranges(self, source: str, flags: str, column: int) -> Chars:
        try:
            chars = chars_of(source, flags)
        except regex.error as error:
            raise self._fail(f"{source} is not understood ({error.msg})", column) from None
        if not chars.ranges:
            raise self._fail(f"No character matches {source}", column)
        return chars

    def _group(self, flags: str) -> Node:
        start = self.at
        for opening, construct in _GROUPS.items():
            if self._looking_at(opening):
                raise self._refuse(construct, opening)
        if re.compile(r"\(\?[-+]?\d").match(self.pattern, start):
            raise self._refuse("a call of a group", self.pattern[start : start + 3])
        if self._looking_at("(?#"):
            self.at = self.pattern.find(")", start) + 1
            if not self.at:
                raise self._fail("The comment is not closed", start)
            return EMPTY
        head = re.compile(r"\(\?(?:P?<\w+>|([a-zA-Z]*)(?:-([a-zA-Z]+))?(:|\)))").match(self.pattern, start)
        if self._looking_at("(?") and not head:
            raise self._refuse("a group of this kind", self.pattern[start : start + 3])
        if head and head[3] == ")":
            raise self._fail("Inline flags stand in the middle", start, "Put them first, or write (?i:...).")
        self.at = head.end() if head else start + 1
        item = self._choice(self._flags(head[1] or "", head[2] or "", flags) if head else flags)
        if not self._looking_at(")"):
            raise self._fail("The group is not closed", start)
        self.at += 1
        return item

    def _class(self, flags: str) -> Chars:
        start = self.at
        self.at += 2 if self._looking_at("[^") else 1
        if self._looking_at("]"):
            self.at += 1
        while not self._looking_at("]"):
            if self.at >= len(self.pattern):
                raise self._fail("The class is not closed", start)
            pair = self.pattern[self.at : self.at + 2]
            if pair in _SET_OPERATORS:
                raise self._refuse("a set operation", pair)
            named = re.compile(r"\[:\^?\w+:\]").match(self.pattern, self.at)
            if self._looking_at("[") and not named:
                raise self._refuse("a set within a set", "[")
            if "i" in flags and pair in (r"\D", r"\W", r"\S"):
                raise self._refuse("a negated shorthand in a class without case", pair)
            self.at = named.end() if named else self.at + (2 if pair[0] == "\\" else 1)
        self.at += 1
        return self._ranges(self.pattern[start : self.at], flags, start)

    def _escape(self, flags: str) -> Node:
        column, letter = self.at, self.pattern[self.at + 1 : self.at + 2]
        if not letter:
            raise self._fail("A backslash ends the pattern", column)
        if letter in _ESCAPES:
            raise self._refuse(_ESCAPES[letter], "\\" + letter)
        self.at += 2
        if letter in "AZz":
            return Anchor("\\" + letter, column)
        if letter in _HEX:
            self.at += _HEX[letter]
        elif letter in "pPN" and self._looking_at("{"):
            self.at = self.pattern.find("}", self.at) + 1 or len(self.pattern)
        elif letter in "pP":
            self.at += 1
        elif letter.isalnum() and letter not in "dDwWsSntrfva":
            raise self._fail(f"\\{letter} is not understood", column)
        return self._ranges(self.pattern[column : self.at], flags, column)

    def _strip(self, node: Node, *, first: bool, last: bool) -> Node:
        """Return the tree without anchors; ConfigError for an anchor that is not at the edge of the text."""
        if isinstance(node, Anchor):
            if not (first if node.kind in _START else last):
                fault = f"No back end can enforce an anchor ({node.kind}) inside the pattern"
                raise self._fail(fault, node.offset)
            return EMPTY
        if not isinstance(node, Seq):
            is_edge = isinstance(node, Alt)
            return mapped(
                node, lambda part: self._strip(part, first=first and is_edge, last=last and is_edge)
            )
        edges = [isinstance(item, Anchor) for item in node.items]
        ends = [(first and all(edges[:at]), last and all(edges[at + 1 :])) for at in range(len(edges))]
        items = zip(node.items, ends, strict=True)
        return Seq(tuple(self._strip(item, first=begin, last=end) for item, (begin, end) in items))
