"""One JSON document from a text, read as RFC 8259 writes it and no wider."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Never

from gencli.structured.errors import DocumentError

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "parse"]

MAX_DEPTH = 256  # lists and objects around a value
MAX_DIGITS = 1000  # of a number, written out

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"')
_SOUND = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-+.\w]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONSTANTS = {"true": True, "false": False, "null": None}
_OPENED = object()


@dataclass(slots=True)
class _Open:
    """A list or object that is being read; `key` is where its next value goes."""

    value: Any
    key: str = ""


def parse(text: str, *, doubles: bool = False) -> Any:
    """The value of the document that is the whole of `text`, but for white space around it.

    Whole numbers are ints. Other numbers are floats; one that a float cannot hold is a Decimal, or with
    `doubles` the nearest float. Raises DocumentError, also for what many readers let pass: a key that
    stands twice in an object, half a surrogate pair, NaN, a byte order mark.
    """
    return _Reader(text, doubles).read()


class _Reader:
    """Goes through the text once, without recursion."""

    def __init__(self, text: str, doubles: bool) -> None:
        self._text = text
        self._at = 0
        self._doubles = doubles
        self._open: list[_Open] = []

    def read(self) -> Any:
        if self._text.startswith("\ufeff"):
            self._fail("a byte order mark stands before the document")
        while True:
            value = self._value()
            if value is _OPENED:
                continue
            while self._open and self._is_last(value):
                value = self._open.pop().value
            if not self._open:
                break
        self._space()
        if self._at < len(self._text):
            self._fail(f"{self._shown()} stands behind the end of the document")
        return value

    def _value(self) -> Any:
        """A whole value, or _OPENED when a list or object has begun."""
        match self._space():
            case '"':
                return self._string()
            case "{" | "[" as bracket:
                return self._begin(bracket)
            case "":
                self._fail("the document ends where a value has to follow")
            case "-" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                return self._number()
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _CONSTANTS:
            self._fail(f"{self._shown()} is no JSON value")
        self._at = word.end()
        return _CONSTANTS[word[0]]

    def _begin(self, bracket: str) -> Any:
        if len(self._open) == MAX_DEPTH:
            self._fail(f"lists and objects are nested more than {MAX_DEPTH} deep")
        self._at += 1
        value: Any = {} if bracket == "{" else []
        if self._space() == ("}" if bracket == "{" else "]"):
            self._at += 1
            return value
        self._open.append(_Open(value))
        if bracket == "{":
            self._key()
        return _OPENED

    def _is_last(self, value: Any) -> bool:
        """Put a value where it belongs; whether its list or object ends behind it."""
        here = self._open[-1]
        if is_object := isinstance(here.value, dict):
            here.value[here.key] = value
        else:
            here.value.append(value)
        end = "}" if is_object else "]"
        char = self._space()
        if char not in (",", end):
            self._fail(f"{self._shown()} stands where a comma or {end} has to follow")
        self._at += 1
        if char == "," and is_object:
            self._key()
        return char == end

    def _key(self) -> None:
        if self._space() != '"':
            self._fail(f"{self._shown()} stands where a key in double quotes has to follow")
        start, key = self._at, self._string()
        if key in self._open[-1].value:
            self._fail(f"the key {_short(key)} stands twice in one object", start)
        if self._space() != ":":
            self._fail(f"{self._shown()} stands where a colon has to follow")
        self._at += 1
        self._open[-1].key = key

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail_in_string()
        start, self._at = self._at, found.end()
        string: str = json.loads(found[0])
        if _SURROGATE.search(string):
            self._fail(f"the string {_short(string)} has half a surrogate pair", start)
        return string

    def _fail_in_string(self) -> Never:
        sound = _SOUND.match(self._text, self._at)
        end = sound.end() if sound else self._at
        char = self._text[end : end + 1]
        if not char:
            self._fail("the document ends within the string that begins here")
        if char == "\\":
            self._fail(f"{self._text[end : end + 2]!r} begins no escape that JSON has", end)
        self._fail(f"the control character {char!r} stands in a string; write \\u{ord(char):04x}", end)

    def _number(self) -> int | float | Decimal:
        word = _WORD.match(self._text, self._at)
        text = word[0] if word else ""
        found = _NUMBER.fullmatch(text)
        if found is None:
            self._fail(f"{_short(text)} is no JSON number")
        if len(text) > MAX_DIGITS or abs(int(found[3][1:] if found[3] else 0)) > MAX_DIGITS:
            self._fail(f"the number {_short(text)} has more than {MAX_DIGITS} digits when written out")
        self._at += len(text)
        if found[2] is None and found[3] is None:
            return int(text)
        near = float(text)
        if self._doubles and abs(near) == float("inf"):
            self._fail(f"the number {_short(text)} is too large for a double", self._at - len(text))
        return near if self._doubles or Decimal(repr(near)) == Decimal(text) else Decimal(text)

    def _space(self) -> str:
        """Step over white space; the character behind it, empty at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _shown(self) -> str:
        if self._at == len(self._text):
            return "the end of the text"
        word = _WORD.match(self._text, self._at)
        return _short(word[0] if word else self._text[self._at])

    def _fail(self, message: str, at: int | None = None) -> Never:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        raise DocumentError(f"{message}.", line, at - self._text.rfind("\n", 0, at))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
