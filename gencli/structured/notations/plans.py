"""Plans for outputs that are checked as text: choices, regular expressions, grammars.

`choice`: the output is one of a few texts. `regex`: an expression that matches the whole output, in a dialect
that the `regex` package and both back ends support: groups, alternatives, classes, greedy and lazy
quantifiers, flags i and s, Unicode properties; \\d, \\w and \\s are ASCII. The back ends interpret a dot,
\\w, \\s, a brace and a class differently, so both get the pattern with its classes written out. `grammar`:
GBNF or xgrammar's EBNF. `lark`: llguidance's Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex  # type: ignore[import-untyped]

from gencli.errors import ConfigError
from gencli.structured.notations.grammar_checks import check_rules, refuse_left_recursion
from gencli.structured.notations.grammar_reader import read_grammar
from gencli.structured.notations.grammar_writer import ebnf_text, lark_text
from gencli.structured.notations.lark_reader import read_lark
from gencli.structured.plan import Audit, Finding, Plan, TextCheck, Variant
from gencli.structured.regex.output_reader import read_regex
from gencli.structured.regex.printer import ESCAPED, show
from gencli.structured.regex.tree import has_letters
from processors.constraint import Constraint

__all__ = ["ChoiceCheck", "RegexCheck", "plan_choices", "plan_grammar", "plan_lark", "plan_regex"]

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
        raise ConfigError(
            "There is no choice.", hint="Give at least one, better two: `choice` = yes `choice` = no."
        )
    seen: set[str] = set()
    for number, choice in enumerate(choices, start=1):
        _refuse(choice, number, seen)
        seen.add(choice)
    constraint = Constraint("choice", json.dumps(list(choices)), "trie")
    check = ChoiceCheck(tuple(choices))
    return Plan((Variant(constraint, Audit("trie")),), "A list of texts needs no grammar.", check=check)


def _refuse(choice: object, number: int, seen: set[str]) -> None:
    if not isinstance(choice, str):
        raise ConfigError(f"Choice {number} is {choice!r}, which is no text.", hint="Put it into quotes.")
    if not choice:
        raise ConfigError(f"Choice {number} is empty.", hint="An output has at least one character.")
    if choice in seen:
        raise ConfigError(f"Choice {number} is {choice!r}, as an earlier one is.", hint="Give each once.")
    if not choice.isascii() and any("\ud800" <= letter <= "\udfff" for letter in choice):
        raise ConfigError(f"Choice {number} is {choice!r}, which is not valid UTF-8.")


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
    notes = () if text == pattern else (Finding("", "regex", "mask", f"Written out as {_short(text)}"),)
    variants = tuple(
        Variant(Constraint("regex", text, backend), Audit(backend, notes))
        for backend in ("xgrammar", "llguidance")
    )
    return Plan(variants, "Both back ends enforce all of it.", check=RegexCheck(pattern, text))


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern, regex.V0)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


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
    variants = (
        _rewritten("ebnf", ebnf_text(grammar.rules, "root"), "xgrammar"),
        _rewritten("lark", lark_text(grammar.rules, "root"), "llguidance"),
    )
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
        raise ConfigError(f"llguidance does not take the Lark grammar: {fault}.")
    variant = Variant(Constraint("lark", text, "llguidance"), Audit("llguidance"))
    return Plan((variant,), "The grammar is in llguidance's Lark.")


def _rewritten(kind: str, text: str, backend: str) -> Variant:
    note = Finding("", "grammar", "mask", "Read as GBNF and rewritten")
    return Variant(Constraint("lark" if kind == "lark" else "ebnf", text, backend), Audit(backend, (note,)))


def _llguidance_fault(text: str) -> str:
    """Return llguidance's own error in one line; "" if it accepts the grammar."""
    from llguidance import LLMatcher

    fault = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text))
    first = re.split(r"\n|⟦", fault)[0].strip().rstrip(".")
    if len(first) > _MOST_SAID:
        first = f"{first[:_MOST_SAID]} ..."
    return re.sub(r"^(?:at )?(\d+)\((\d+)\)", r"line \1, column \2", first)
