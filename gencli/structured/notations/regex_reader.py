"""Regular expressions as parts: what both back ends can enforce, and a name for all that they cannot.

Groups, alternatives, where a class ends, and counted repeats are read here.
"""

from __future__ import annotations

import re

import regex  # type: ignore[import-untyped]

from gencli.errors import ConfigError
from gencli.structured.notations.regex_letters import NEGATED, chars_of
from gencli.structured.notations.syntax import EMPTY, Chars, Choice, Node, Ref, Repeat, Sequence

__all__ = ["MOST_LETTERS", "MOST_NESTED", "MOST_REPEATS", "read_regex"]

MOST_LETTERS = 10_000
MOST_NESTED = 100
MOST_REPEATS = 100_000

_COUNT = re.compile(r"\{(?:(\d+)|(\d*),(\d*))\}")
_HEX = {"x": 2, "u": 4, "U": 8}
_CONTROL = "ntrfva"
_START = ("^", "\\A")  # An anchor is read as a reference to one of these or to an end.
_SET_OPERATORS = ("--", "&&", "||", "~~")
_GROUPS = {
    "(?=": "a lookahead",
    "(?!": "a negative lookahead",
    "(?<=": "a lookbehind",
    "(?<!": "a negative lookbehind",
    "(?>": "an atomic group",
    "(?P=": "a backreference",
    "(?P>": "a call of a group",
    "(?P&": "a call of a group",
    "(?&": "a call of a group",
    "(?R": "recursion",
    "(?(": "a conditional",
    "(?|": "a branch reset",
    "(*": "a control verb",
}
_ESCAPES = {
    "b": "a word boundary",
    "B": "a word boundary",
    "m": "a word boundary",
    "M": "a word boundary",
    "G": "a search anchor",
    "K": "a match reset",
    "X": "a grapheme",
    "R": "a line break of any kind",
    "L": "a named list",
    "g": "a backreference",
    "k": "a backreference",
}


def read_regex(pattern: str) -> Node:
    """A pattern that has to match the whole text. ConfigError names what it cannot have, with the column."""
    if len(pattern) > MOST_LETTERS:
        raise ConfigError(f"The regex has {len(pattern)} characters; at most {MOST_LETTERS} are read.")
    return _Reader(pattern).read()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def read(self) -> Node:
        node = self._strip(self._choice(self._global_flags()), first=True, last=True)
        if self.at < len(self.pattern):
            raise self._fail("There is no group that ')' could close")
        return node

    def _fail(self, what: str, column: int | None = None, hint: str = "") -> ConfigError:
        where = (self.at if column is None else column) + 1
        return ConfigError(f"{what}, at column {where} of the regex {_short(self.pattern)}.", hint=hint)

    def _refuse(self, what: str, text: str, column: int | None = None) -> ConfigError:
        return self._fail(f"No back end can enforce {what} ({text})", column)

    def _looking_at(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def _global_flags(self) -> str:
        flags = ""
        while found := re.compile(r"\(\?([a-z]+)\)").match(self.pattern, self.at):
            flags = self._flags(found[1], "", flags)
            self.at = found.end()
        return flags

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
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self, flags: str) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self._repeated(self._item(flags)))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _repeated(self, item: Node) -> Node:
        start, bounds = self.at, self._bounds()
        if bounds is None:
            return item
        if isinstance(item, Ref):
            raise self._fail(f"An anchor ({item.name}) cannot be repeated", start)
        if self._looking_at("+"):
            raise self._refuse("a possessive quantifier", self.pattern[start : self.at + 1], start)
        if self._looking_at("?"):
            self.at += 1  # Lazy or not, the same texts match as a whole.
        if self._bounds() is not None:
            raise self._fail("One quantifier follows another", start, "Put the inner one into (?:...).")
        return Repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The bounds of a quantifier that comes next, if one does."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        here = self.pattern[self.at : self.at + 1]
        if here in simple:
            self.at += 1
            return simple[here]
        count = _COUNT.match(self.pattern, self.at)
        if not count:
            return None
        least = int(count[1] or count[2] or 0)
        most = int(count[1]) if count[1] else int(count[3]) if count[3] else None
        if max(least, most or 0) > MOST_REPEATS:
            raise self._fail(f"{count[0]} repeats more than {MOST_REPEATS} times")
        if most is not None and least > most:
            raise self._fail(f"{count[0]} has a minimum above its maximum")
        self.at = count.end()
        return least, most

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
            return Ref(letter, column)
        if letter == "." or ("i" in flags and _has_case(letter)):
            return self._ranges(letter if letter == "." else regex.escape(letter), flags, column)
        if "\ud800" <= letter <= "\udfff":
            raise self._fail("The pattern is not valid UTF-8", column)
        return Chars(((ord(letter), ord(letter)),))

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
        for opening, what in _GROUPS.items():
            if self._looking_at(opening):
                raise self._refuse(what, opening)
        if re.compile(r"\(\?[-+]?\d").match(self.pattern, start):
            raise self._refuse("a call of a group", self.pattern[start : start + 3])
        if self._looking_at("(?#"):
            return self._comment(start)
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

    def _comment(self, start: int) -> Node:
        end = self.pattern.find(")", start)
        if end < 0:
            raise self._fail("The comment is not closed", start)
        self.at = end + 1
        return EMPTY

    def _class(self, flags: str) -> Chars:
        start = self.at
        self.at += 2 if self._looking_at("[^") else 1
        if self._looking_at("]"):
            self.at += 1
        while not self._looking_at("]"):
            if self.at >= len(self.pattern):
                raise self._fail("The class is not closed", start)
            self._class_member(flags)
        self.at += 1
        return self._ranges(self.pattern[start : self.at], flags, start)

    def _class_member(self, flags: str) -> None:
        if self.pattern[self.at : self.at + 2] in _SET_OPERATORS:
            raise self._refuse("a set operation", self.pattern[self.at : self.at + 2])
        named = re.compile(r"\[:\^?\w+:\]").match(self.pattern, self.at)
        if self._looking_at("[") and not named:
            raise self._refuse("a set within a set", "[")
        if "i" in flags and self._looking_at("\\") and self.pattern[self.at + 1 : self.at + 2] in NEGATED:
            raise self._refuse("a negated shorthand in a class without case", self.pattern[self.at :][:2])
        self.at = named.end() if named else self.at + (2 if self._looking_at("\\") else 1)

    def _escape(self, flags: str) -> Node:
        column, letter = self.at, self.pattern[self.at + 1 : self.at + 2]
        if not letter:
            raise self._fail("A backslash ends the pattern", column)
        if letter in _ESCAPES:
            raise self._refuse(_ESCAPES[letter], "\\" + letter)
        if letter in "123456789":
            raise self._refuse("a backreference", "\\" + letter)
        self.at += 2
        if letter in "AZz":
            return Ref("\\" + letter, column)
        if letter in _HEX:
            self.at += _HEX[letter]
        elif letter in "pPN" and self._looking_at("{"):
            self.at = self.pattern.find("}", self.at) + 1 or len(self.pattern)
        elif letter in "pP":
            self.at += 1
        elif letter.isalnum() and letter not in "dDwWsS" + _CONTROL:
            raise self._fail(f"\\{letter} is not understood", column)
        return self._ranges(self.pattern[column : self.at], flags, column)

    def _strip(self, node: Node, *, first: bool, last: bool) -> Node:
        """Without the anchors, which are allowed where the edge of the text is anyway."""
        if isinstance(node, Ref):
            if not (first if node.name in _START else last):
                what = f"No back end can enforce an anchor ({node.name}) inside the pattern"
                raise self._fail(what, node.offset)
            return EMPTY
        if isinstance(node, Choice):
            return Choice(tuple(self._strip(item, first=first, last=last) for item in node.items))
        if isinstance(node, Sequence):
            edges = [isinstance(item, Ref) for item in node.items]
            return Sequence(
                tuple(
                    self._strip(item, first=first and all(edges[:at]), last=last and all(edges[at + 1 :]))
                    for at, item in enumerate(node.items)
                )
            )
        if isinstance(node, Repeat):
            return Repeat(self._strip(node.item, first=False, last=False), node.least, node.most)
        return node


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")


def _has_case(letter: str) -> bool:
    return not letter == letter.lower() == letter.upper() == letter.title() == letter.casefold()
