"""`--regex`: an expression that the whole output matches.

The dialect is what the `regex` package and both back ends can agree on: groups, alternatives, classes,
greedy and lazy quantifiers, flags i and s, Unicode properties; \\d, \\w and \\s are ASCII. What a dot, \\w,
\\s, a brace or a class means differs between the back ends. So each gets the pattern with its classes written
out, which both read alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import regex  # type: ignore[import-untyped]

from gencli.errors import ConfigError
from gencli.structured.notations.regex_reader import read_regex
from gencli.structured.notations.syntax import Chars, Choice, Node, Repeat, Sequence, code_point, has_letters
from gencli.structured.plan import Audit, Finding, Plan, Variant
from processors.constraint import Constraint

__all__ = ["RegexCheck", "class_text", "count_text", "plan_regex", "regex_text"]

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RegexCheck:
    """Matches the finished text against the pattern as it was written out."""

    pattern: str
    written: str

    def faults(self, text: str) -> tuple[str, ...]:
        """See TextCheck. A pattern that backtracks for more than ten seconds is a fault, too."""
        try:
            matches = _compiled(self.written).fullmatch(text, timeout=_SECONDS)
        except TimeoutError:
            return (f"The regex {self.pattern!r} could not be checked in {_SECONDS:g} s.",)
        return () if matches else (f"The text does not match the regex {self.pattern!r}.",)


def plan_regex(pattern: str) -> Plan:
    """How to enforce a regular expression. ConfigError names what no back end can enforce."""
    node = read_regex(pattern)
    if not has_letters(node, lambda name: False):
        raise ConfigError(f"The regex {pattern!r} allows nothing but the empty text.")
    text = regex_text(node)
    notes = () if text == pattern else (Finding("", "regex", "mask", f"Written out as {_short(text)}"),)
    variants = tuple(
        Variant(Constraint("regex", text, backend), Audit(backend, notes))
        for backend in ("xgrammar", "llguidance")
    )
    return Plan(variants, "Both back ends enforce all of it.", check=RegexCheck(pattern, text))


def regex_text(node: Node) -> str:
    """A pattern that xgrammar and llguidance read alike: no flags, no shorthands, no anchors."""
    if isinstance(node, Chars):
        return class_text(node)
    if isinstance(node, Sequence):
        return "".join(f"(?:{regex_text(i)})" if isinstance(i, Choice) else regex_text(i) for i in node.items)
    if isinstance(node, Choice):
        return "|".join(regex_text(item) for item in node.items)
    assert isinstance(node, Repeat)
    item = regex_text(node.item)
    return (item if isinstance(node.item, Chars) else f"(?:{item})") + count_text(node)


def class_text(chars: Chars) -> str:
    """A class or one character."""
    ranges = chars.ranges
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return code_point(ranges[0][0])
    pieces = (code_point(a) if a == b else f"{code_point(a)}-{code_point(b)}" for a, b in ranges)
    return "[" + "".join(pieces) + "]"


def count_text(node: Repeat) -> str:
    """A quantifier."""
    marks = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    most = "" if node.most is None else node.most
    return marks.get((node.least, node.most)) or f"{{{node.least},{most}}}"


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern, regex.V0)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
