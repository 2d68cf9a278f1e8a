"""`--grammar` (GBNF or xgrammar's EBNF), `--lark` (llguidance's Lark): what to run, and what is refused."""

from __future__ import annotations

import re

from gencli.errors import ConfigError
from gencli.structured.notations.grammar_checks import check_rules, refuse_left_recursion
from gencli.structured.notations.grammar_reader import read_grammar
from gencli.structured.notations.grammar_writer import ebnf_text, lark_text
from gencli.structured.notations.lark_reader import read_lark
from gencli.structured.plan import Audit, Finding, Plan, Variant
from processors.constraint import Constraint

__all__ = ["plan_grammar", "plan_lark"]

_MOST_RULES = 500
_MOST_SAID = 200  # characters of what llguidance says, which may repeat the grammar


def plan_grammar(text: str) -> Plan:
    """How to enforce a grammar whose root is `root`.

    GBNF is rewritten for either back end; a grammar with what only xgrammar has goes to xgrammar as it is.
    ConfigError, with line and column: what is neither, undefined and endless rules, left recursion.
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
    """How to enforce a grammar in llguidance's Lark, which begins at `start`.

    xgrammar reads nearly the same notation, but its terminals may match less than they can, so the same text
    would allow other outputs; it is not tried. ConfigError, with line and column, for what llguidance lacks.
    """
    rules = read_lark(text)
    check_rules(text, rules, "start")
    # It descends from rule to rule on the stack; large grammars are tried in a process of their own, later.
    fault = _llguidance_fault(text) if len(rules) <= _MOST_RULES else ""
    if fault:
        raise ConfigError(f"llguidance does not take the Lark grammar: {fault}.")
    variant = Variant(Constraint("lark", text, "llguidance"), Audit("llguidance"))
    return Plan((variant,), "The grammar is in llguidance's Lark.")


def _rewritten(kind: str, text: str, backend: str) -> Variant:
    note = Finding("", "grammar", "mask", "Read as GBNF and rewritten")
    return Variant(Constraint("lark" if kind == "lark" else "ebnf", text, backend), Audit(backend, (note,)))


def _llguidance_fault(text: str) -> str:
    """What llguidance itself says, on one line."""
    from llguidance import LLMatcher

    fault = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text))
    first = re.split(r"\n|⟦", fault)[0].strip().rstrip(".")
    if len(first) > _MOST_SAID:
        first = f"{first[:_MOST_SAID]} ..."
    return re.sub(r"^(?:at )?(\d+)\((\d+)\)", r"line \1, column \2", first)
