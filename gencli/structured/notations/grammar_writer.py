"""Grammars written for the back ends: xgrammar's EBNF, and llguidance's Lark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gencli.structured.notations.grammar_checks import Rule, find_recursion
from gencli.structured.notations.regexes import class_text, count_text
from gencli.structured.notations.syntax import Chars, Choice, Node, Ref, Repeat, Sequence, code_point

__all__ = ["ebnf_text", "lark_text"]


def ebnf_text(rules: dict[str, Rule], root: str) -> str:
    """The rules in xgrammar's notation, where a name is no digit and no `true`: all but the root get `r-`."""
    names = {given: given if given == root else f"r-{given}" for given in rules}
    write = _Writer(names, _ebnf_class, _ebnf_string).write
    return "".join(f"{names[given]} ::= {write(rule.node)}\n" for given, rule in rules.items())


def lark_text(rules: dict[str, Rule], root: str) -> str:
    """The rules in llguidance's notation.

    Its lexer takes the longest match of a terminal and does not come back for less. So a grammar that never
    recurs becomes one terminal; in others each character is a terminal by itself.
    """
    prefix = "rule_" if find_recursion(rules) else "RULE_"
    names = {given: f"{prefix}{number}" for number, given in enumerate(rules)}
    write = _Writer(names, _lark_class, _lark_string).write
    lines = [f"start: {names[root]}\n"]
    return "".join(lines + [f"{names[given]}: {write(rule.node)}\n" for given, rule in rules.items()])


@dataclass(frozen=True, slots=True)
class _Writer:
    names: dict[str, str]
    chars: Callable[[Chars], str]
    string: Callable[[str], str]

    def write(self, node: Node) -> str:
        """A node; the caller puts it in brackets where that matters."""
        if isinstance(node, Chars):
            return self.chars(node)
        if isinstance(node, Ref):
            return self.names[node.name]
        if isinstance(node, Choice):
            return " | ".join(map(self.write, node.items))
        if isinstance(node, Sequence):
            return " ".join(self._items(node)) or '""'
        assert isinstance(node, Repeat)
        return f"({self.write(node.item)}){count_text(node)}"

    def _items(self, node: Sequence) -> Iterator[str]:
        run = ""
        for item in node.items:
            if isinstance(item, Chars) and item.ranges[0][0] == item.ranges[-1][1]:
                run += chr(item.ranges[0][0])
                continue
            if run:
                yield self.string(run)
            run = ""
            yield f"({self.write(item)})" if isinstance(item, Choice) else self.write(item)
        if run:
            yield self.string(run)


def _ebnf_class(chars: Chars) -> str:
    text = class_text(chars)
    return text if text.startswith("[") else f"[{text}]"


def _ebnf_string(text: str) -> str:
    return '"' + "".join(code_point(ord(letter)) for letter in text) + '"'


def _lark_class(chars: Chars) -> str:
    return f"/{class_text(chars)}/"


def _lark_string(text: str) -> str:
    return " ".join(f"/{code_point(ord(letter))}/" for letter in text)
