"""Reader of grammars in GBNF (llama.cpp) or in xgrammar's EBNF.

The two notations share rules, strings, classes, groups and quantifiers. Only GBNF has `.` for any character,
names that begin with a digit, and stacked quantifiers such as `"a"*?`. Only xgrammar has names with `_` or
`.`, rule options, macros, lookaheads, `[^]` and escapes such as `\\f`. `\\x` takes two digits in GBNF, any
number in xgrammar. The features of a text determine its notation; a text with features of both is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from gencli.errors import ConfigError
from gencli.structured.notations.grammar_checks import Rule, place
from gencli.structured.notations.grammar_letters import read_class, read_string
from gencli.structured.regex.tree import (
    EMPTY,
    QUANTIFIERS,
    TOP,
    Chars,
    Node,
    Ref,
    Repeat,
    Verbatim,
    alt,
    bounds_fault,
    drop_surrogates,
    seq,
)

__all__ = ["MOST_LETTERS", "Dialect", "Grammar", "looks_like_lark", "read_grammar"]

Dialect = Literal["gbnf", "xgrammar"]
MOST_LETTERS = 1 << 20
_MOST_NESTED = 100
_MOST_STACKED = 4
_ANY = Chars(drop_surrogates(((0, TOP),)))

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_HEAD = re.compile(r"(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?P<options>\[[^\]\r\n]*\])?[ \t]*::=")
_COUNT = re.compile(r"\{\s*(\d+)\s*(,)?\s*(\d+)?\s*\}")
_MACROS = ("TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "Regex", "Substring", "Repeat")
_LARK = re.compile(r"\s*(?:%|[?!]?\w+(?:\.\d+)?\s*:(?!:?=))")
_OTHERS = (
    (_LARK, "a Lark grammar", "Give it with `lark`."),
    (re.compile(r"\s*<[^>\n]+>\s*::="), "BNF with names in angle brackets", "Write name ::= ..."),
    (re.compile(r"\s*[\w ]+:="), "EBNF with :=", "Write name ::= ..."),
    (re.compile(r"\s*[\w ]+="), "ISO EBNF with =", "Write name ::= ..., without commas and semicolons."),
    (re.compile(r"\s*[\w ]+->"), "rules with arrows", "Write name ::= ..."),
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The rules in order, and their dialect."""

    rules: dict[str, Rule]
    dialect: Dialect


def looks_like_lark(text: str) -> bool:
    """Return whether a grammar begins as one in Lark's notation does, behind comments."""
    start = _SPACE.match(text)
    return start is not None and _LARK.match(text, start.end()) is not None


def read_grammar(text: str) -> Grammar:
    """Read the rules of a text. Raises ConfigError with line and column."""
    if len(text) > MOST_LETTERS:
        raise ConfigError(f"The grammar has {len(text)} characters; at most {MOST_LETTERS} are read.")
    start = _SPACE.match(text)
    if start and start.end() == len(text):
        raise ConfigError("The grammar is empty.", hint='Write at least: root ::= "text"')
    for pattern, what, hint in _OTHERS:
        if start and pattern.match(text, start.end()):
            raise ConfigError(f"The grammar looks like {what}; `grammar` takes GBNF.", hint=hint)
    reader = _Reader(text)
    rules = reader.rules()
    dialect = reader.dialect()
    if dialect == "xgrammar" and reader.ambiguous_hex:
        # Read again, because xgrammar takes all hexadecimal digits after \x.
        rules = _Reader(text, hex_digits=8).rules()
    return Grammar(rules, dialect)


@dataclass
class _Reader:
    text: str
    hex_digits: int = 2
    at: int = 0
    depth: int = 0
    seen: dict[Dialect, tuple[str, int]] = field(default_factory=dict)
    ambiguous_hex: bool = False

    def dialect(self) -> Dialect:
        """Return the dialect; GBNF if the text has no feature of one dialect only."""
        if len(self.seen) == 2:
            (one, first), (other, second) = self.seen["gbnf"], self.seen["xgrammar"]
            raise ConfigError(
                f"The grammar mixes two notations: {one} at {place(self.text, first)} is of GBNF alone, "
                f"{other} at {place(self.text, second)} of xgrammar's EBNF alone."
            )
        return next(iter(self.seen), "gbnf")

    def rules(self) -> dict[str, Rule]:
        """Read all rules."""
        rules: dict[str, Rule] = {}
        self._skip()
        while self.at < len(self.text):
            start = self.at
            head = _HEAD.match(self.text, start)
            if not head:
                raise self.fail("A rule is expected here (name ::= ...)")
            name = head["name"]
            if name in rules:
                raise self.fail(f"Rule {name!r} is there a second time")
            self._note_name(name, start)
            options = self._options(head["options"], head.start("options"))
            self.at = head.end()
            rules[name] = Rule(self._choice(), start, options)
            self._skip()
        return rules

    def fail(self, what: str, offset: int | None = None, hint: str = "") -> ConfigError:
        """Return an error with line and column."""
        where = place(self.text, self.at if offset is None else offset)
        return ConfigError(f"{what}, at {where} of the grammar.", hint=hint)

    def note(self, dialect: Dialect, what: str, offset: int) -> None:
        """Record a feature that only one dialect has."""
        self.seen.setdefault(dialect, (what, offset))

    def _note_name(self, name: str, offset: int) -> None:
        if name[0].isdigit():
            self.note("gbnf", f"the name {name!r}", offset)
        if "." in name:
            self.note("xgrammar", f"the name {name!r}", offset)

    def _options(self, text: str | None, offset: int) -> str:
        if text is None:
            return ""
        self.note("xgrammar", f"the rule option {text}", offset)
        names = re.findall(r"(\w+)(?:\s*=\s*(?:\"[^\"]*\"|[\w.+-]+))?", text)
        if "temperature" in names:
            also = " together with max_tokens" if "max_tokens" in names else ""
            raise self.fail(f"A temperature of one rule{also} is not applied", offset, "Use `temperature`.")
        for name in names:
            if name not in ("max_tokens", "max_chars", "lazy"):
                raise self.fail(f"The rule option {name!r} has no effect here", offset, "Leave it out.")
        return text

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found
        self.at = found.end()

    def _choice(self) -> Node:
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise self.fail(f"More than {_MOST_NESTED} groups are inside one another")
        items = [self._sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            items.append(self._sequence())
        self.depth -= 1
        return alt(items)

    def _sequence(self) -> Node:
        items: list[Node] = []
        self._skip()
        while self.at < len(self.text) and self.text[self.at] not in "|)" and not self._rule_begins():
            items.append(self._repeated(self._element()))
            self._skip()
        return seq(items)

    def _rule_begins(self) -> bool:
        return _HEAD.match(self.text, self.at) is not None

    def _element(self) -> Node:
        letter, start = self.text[self.at], self.at
        if letter == '"':
            return read_string(self)
        if letter == "[":
            return read_class(self)
        if letter == "(":
            return self._group()
        if letter in "<!":
            raise self.fail("A token by its name or id cannot be used", hint="Write its text as a string.")
        if letter == "'":
            raise self.fail("A string has double quotes")
        if letter in "*+?{":
            raise self.fail(f"There is nothing that {letter!r} could repeat")
        if letter == ".":
            self.at += 1
            self.note("gbnf", "a dot for any character", start)
            return _ANY
        name = _NAME.match(self.text, start)
        if not name:
            raise self.fail(f"{letter!r} is not understood")
        self.at = name.end()
        if self.text.startswith("(", self.at):
            return self._macro(name[0], start)
        self._note_name(name[0], start)
        return Ref(name[0], start)

    def _group(self) -> Node:
        start = self.at
        if self.text.startswith("(=", start):
            raise self.fail("A lookahead cannot be used", hint="It says nothing that the rules do not say.")
        self.at += 1
        item = self._choice()
        if not self.text.startswith(")", self.at):
            raise self.fail("The group is not closed", start)
        self.at += 1
        return item

    def _macro(self, name: str, start: int) -> Node:
        if name not in _MACROS:
            known = ", ".join(_MACROS)
            raise self.fail(f"There is no macro {name!r}", start, f"xgrammar has {known}; or leave a space.")
        self.note("xgrammar", f"the macro {name}", start)
        depth = 0
        for found in re.compile(r'"(?:[^"\\]|\\.)*"|[()]').finditer(self.text, self.at):
            depth += {"(": 1, ")": -1}.get(found[0], 0)
            if depth == 0:
                self.at = found.end()
                return Verbatim(self.text[start : self.at])
        raise self.fail(f"The macro {name} is not closed", start)

    def _repeated(self, item: Node) -> Node:
        stacked = 0
        while (bounds := self._bounds()) is not None:
            start, (least, most) = self.at, bounds
            stacked += 1
            if stacked == 2:
                self.note("gbnf", "a quantifier after a quantifier", start)
            if stacked > _MOST_STACKED:
                raise self.fail(f"More than {_MOST_STACKED} quantifiers follow one another")
            item = Repeat(item, least, most)
        return item if not isinstance(item, Repeat) or item.most != 0 else EMPTY

    def _bounds(self) -> tuple[int, int | None] | None:
        found = re.compile(r"[ \t]*(?=[*+?{])").match(self.text, self.at)
        if not found:
            return None
        start = self.at = found.end()
        if self.text[start] in QUANTIFIERS:
            self.at += 1
            return QUANTIFIERS[self.text[start]]
        count = _COUNT.match(self.text, start)
        if not count:
            raise self.fail("A count is expected: {2}, {2,} or {2,4}")
        least = int(count[1])
        most = int(count[3]) if count[3] else None if count[2] else least
        if fault := bounds_fault(count[0], least, most):
            raise self.fail(fault)
        self.at = count.end()
        return least, most
