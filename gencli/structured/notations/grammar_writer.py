"""Writers of grammars: xgrammar's EBNF and llguidance's Lark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gencli.structured.notations.grammar_checks import Rule, find_recursion
from gencli.structured.regex.printer import ESCAPED, class_text, code_point, count_text
from gencli.structured.regex.tree import Alt, Chars, Node, Ref, Repeat, Seq

__all__ = ["ebnf_text", "lark_text"]


def ebnf_text(rules: dict[str, Rule], root: str) -> str:
    """Return the rules in xgrammar's notation.

    All names except the root get the prefix `r-`, because a name may be neither a digit nor `true`.
    """
    names = {given: given if given == root else f"r-{given}" for given in rules}
    write = _Writer(names, _ebnf_class, _ebnf_string).write
    return "".join(f"{names[given]} ::= {write(rule.node)}\n" for given, rule in rules.items())


def lark_text(rules: dict[str, Rule], root: str) -> str:
    """Return the rules in llguidance's notation.

    llguidance's lexer only takes the longest match of a terminal. So a grammar without recursion becomes one
    terminal; in other grammars each character is a terminal.
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
        """Return a node as text; the caller adds brackets if needed."""
        if isinstance(node, Chars):
            return self.chars(node)
        if isinstance(node, Ref):
            return self.names[node.name]
        if isinstance(node, Alt):
            return " | ".join(map(self.write, node.items))
        if isinstance(node, Seq):
            return " ".join(self._items(node)) or '""'
        assert isinstance(node, Repeat)
        return f"({self.write(node.body)}){count_text(node, ESCAPED)}"

    def _items(self, node: Seq) -> Iterator[str]:
        run = ""
        for item in node.items:
            if isinstance(item, Chars) and item.ranges[0][0] == item.ranges[-1][1]:
                run += chr(item.ranges[0][0])
                continue
            if run:
                yield self.string(run)
            run = ""
            yield f"({self.write(item)})" if isinstance(item, Alt) else self.write(item)
        if run:
            yield self.string(run)


def _ebnf_class(chars: Chars) -> str:
    text = class_text(chars, code_point)
    return text if text.startswith("[") else f"[{text}]"


def _ebnf_string(text: str) -> str:
    return '"' + "".join(code_point(ord(letter)) for letter in text) + '"'


def _lark_class(chars: Chars) -> str:
    return f"/{class_text(chars, code_point)}/"


def _lark_string(text: str) -> str:
    return " ".join(f"/{code_point(ord(letter))}/" for letter in text)
