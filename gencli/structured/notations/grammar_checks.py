"""Checks of a grammar before it is passed to a back end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from gencli.errors import ConfigError
from gencli.structured.regex.tree import (
    Alt,
    Chars,
    Node,
    Ref,
    Repeat,
    Seq,
    Verbatim,
    has_letters,
    parts,
    walk,
)
from processors.errors import nearest

__all__ = ["Rule", "check_rules", "find_recursion", "place", "refuse_left_recursion"]

_Known = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """The node of a rule, its offset in the grammar, and its options as text."""

    node: Node
    offset: int
    options: str = ""


def place(text: str, offset: int) -> str:
    """Return the line and column of an offset, counted from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def check_rules(text: str, rules: dict[str, Rule], root: str) -> None:
    """Raise ConfigError for a missing or empty root, an undefined rule, or one that matches no text."""
    if root not in rules:
        raise ConfigError(
            f"The grammar has no rule {root!r}, where it would begin.", hint=nearest(root, rules)
        )
    for rule in rules.values():
        for ref in _refs(rule.node):
            if ref.name not in rules:
                where = place(text, ref.offset)
                hint = nearest(ref.name, rules)
                raise ConfigError(
                    f"There is no rule {ref.name!r}, named at {where} of the grammar.", hint=hint
                )
    ending = _closure(rules, _ends)
    for name in _reachable(rules, root):
        if name not in ending:
            where = place(text, rules[name].offset)
            raise ConfigError(
                f"Rule {name!r}, at {where} of the grammar, can never come to an end.",
                hint="Give it an alternative that does not need the rule itself.",
            )
    if root not in _closure(rules, has_letters):
        raise ConfigError(f"Rule {root!r} of the grammar allows nothing but the empty text.")


def refuse_left_recursion(text: str, rules: dict[str, Rule]) -> None:
    """Raise ConfigError for left recursion, direct or through other rules."""
    empty = _closure(rules, _can_be_empty)
    graph = {name: set(_first_refs(rule.node, empty.__contains__)) for name, rule in rules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names = list(reversed(error.args[1]))
        raise ConfigError(
            f"Rule {names[0]!r}, at {place(text, rules[names[0]].offset)} of the grammar, is left-recursive "
            f"({_path(names)}).",
            hint='Write a repetition: instead of  a ::= a "x" | "y"  write  a ::= "y" "x"*',
        ) from None


def _path(names: list[str]) -> str:
    return " -> ".join(names if len(names) <= 8 else [*names[:4], "...", *names[-3:]])


def find_recursion(rules: dict[str, Rule]) -> bool:
    """Whether any rule refers to itself, directly or through other rules."""
    try:
        TopologicalSorter({n: {ref.name for ref in _refs(rule.node)} for n, rule in rules.items()}).prepare()
    except CycleError:
        return True
    return False


def _refs(node: Node) -> Iterator[Ref]:
    return (below for below in walk(node) if isinstance(below, Ref))


def _closure(rules: dict[str, Rule], holds: Callable[[Node, _Known], bool]) -> set[str]:
    """Return the names of the rules for which `holds` is true; the smallest fixed point."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, rule in rules.items():
        for ref in _refs(rule.node):
            users[ref.name].add(name)
    found: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in found and holds(rules[name].node, found.__contains__):
            found.add(name)
            waiting += users[name] - found
    return found


def _ends(node: Node, known: _Known) -> bool:
    """Whether some finite text matches."""
    return _matches(node, known, with_letters=True)


def _can_be_empty(node: Node, known: _Known) -> bool:
    return _matches(node, known, with_letters=False)


def _matches(node: Node, known: _Known, *, with_letters: bool) -> bool:
    """Whether some finite text matches; without `with_letters` whether the empty text matches."""
    if isinstance(node, Ref):
        return known(node.name)
    if isinstance(node, Chars | Verbatim):
        return with_letters
    below_it = (_matches(item, known, with_letters=with_letters) for item in parts(node))
    if isinstance(node, Alt):
        return any(below_it)
    return (isinstance(node, Repeat) and node.least == 0) or all(below_it)


def _first_refs(node: Node, empty: _Known) -> Iterator[str]:
    """Yield the rules with which a text of the node may begin."""
    if isinstance(node, Ref):
        yield node.name
    for item in parts(node):
        yield from _first_refs(item, empty)
        if isinstance(node, Seq) and not _can_be_empty(item, empty):
            return


def _reachable(rules: dict[str, Rule], root: str) -> list[str]:
    found, waiting = {root: None}, [root]
    while waiting:
        for ref in _refs(rules[waiting.pop()].node):
            if ref.name not in found:
                found[ref.name] = None
                waiting.append(ref.name)
    return list(found)
