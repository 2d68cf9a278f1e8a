"""JSON texts: the strict reader (RFC 8259, within limits) and the writer.

The reader refuses what many readers accept: duplicate keys of an object, half a surrogate pair, NaN, a byte
order mark, numbers of thousands of digits. Valid texts are read by the decoder of the standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from typing import Any, Never

from gencli.errors import GenerationError

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"')
_SOUND = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-+.\w]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATES = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # also as escapes and in pairs
_CONSTANTS = {"true": True, "false": False, "null": None}
_OPENED = object()


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Limits of a JSON text, and the type of its numbers.

    `max_depth`: lists and objects around a value. `max_digits`: length of a number that is written out. Whole
    numbers are ints, other numbers floats. With `has_decimals` a number that no float holds is a Decimal;
    otherwise it is the nearest float, and refused if that is infinite.
    """

    max_depth: int = 256
    max_digits: int = 1000
    has_decimals: bool = True


DOCUMENT = JsonLimits()


class DocumentError(GenerationError):
    """A text that is not a JSON document within the limits; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.text, self.line, self.column = message, line, column

    def about(self, text: str) -> str:
        """Return the message; without words of a text that does not begin as an object or a list does.

        Such a text may be a file that the user did not mean to show.
        """
        is_shown = text.lstrip().startswith(("{", "[")) or not {"'", '"'} & set(self.text)
        return self.message if is_shown else f"line {self.line}, column {self.column}."


def parse_json(text: str, limits: JsonLimits = DOCUMENT) -> Any:
    """Return the value of the JSON document in `text`. DocumentError, with line and column, for any other."""
    if not _SURROGATES.search(text):
        has_long = re.search(f"[0-9]{{{limits.max_digits + 1}}}", text) is not None
        try:
            value = _decoder(limits, has_long).decode(text)
            if text.count("[") + text.count("{") <= limits.max_depth or not _is_deep(value, limits.max_depth):
                return value
        except (ValueError, RecursionError):
            pass  # the reader below reports the position
    return _JsonReader(text, limits).read()


@cache
def _decoder(limits: JsonLimits, has_long: bool) -> json.JSONDecoder:
    """Return the decoder of the standard library; numbers of usual length need no check of their digits."""
    number = partial(_number, limits=limits)
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=_refuse,
        parse_float=number,
        parse_int=number if has_long else None,
    )


def _is_deep(value: Any, max_depth: int) -> bool:
    """Whether the nesting of lists and objects exceeds `max_depth`."""
    level = [value]
    for _ in range(max_depth):
        level = [value for value in level if isinstance(value, list | dict)]
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(each, list | dict) for each in level)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice")
    return value


def _refuse(word: str) -> Never:
    raise ValueError(f"{word} is no JSON value")


def _number(text: str, limits: JsonLimits) -> int | float | Decimal:
    """Return the value of a JSON number. Raises ValueError if it is beyond the limits."""
    exponent = text.lower().partition("e")[2]
    if len(text) > limits.max_digits or abs(int(exponent or 0)) > limits.max_digits:
        raise ValueError(
            f"the number {_short(text)} has more than {limits.max_digits} digits when written out"
        )
    if not exponent and "." not in text:
        return int(text)
    near = float(text)
    if not limits.has_decimals and abs(near) == float("inf"):
        raise ValueError(f"the number {_short(text)} is too large for a double")
    return near if not limits.has_decimals or Decimal(repr(near)) == Decimal(text) else Decimal(text)


class _JsonReader:
    """Reads the text without recursion; reports the position of a fault."""

    def __init__(self, text: str, limits: JsonLimits) -> None:
        self._text, self._limits, self._at = text, limits, 0
        self._open: list[Any] = []  # the unfinished lists and objects
        self._keys: list[str] = []  # for each of them the key of its next value

    def read(self) -> Any:
        if self._text.startswith("\ufeff"):
            self._fail("a byte order mark stands before the document")
        while True:
            value = self._value()
            if value is _OPENED:
                continue
            while self._open and self._is_last(value):
                value = self._open.pop()
                self._keys.pop()
            if not self._open:
                break
        self._space()
        if self._at < len(self._text):
            self._fail(f"{self._shown()} stands behind the end of the document")
        return value

    def _value(self) -> Any:
        """Return a whole value, or _OPENED if a list or object begins."""
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
        if len(self._open) == self._limits.max_depth:
            self._fail(f"lists and objects are nested more than {self._limits.max_depth} deep")
        self._at += 1
        value: Any = {} if bracket == "{" else []
        if self._space() == ("}" if bracket == "{" else "]"):
            self._at += 1
            return value
        self._open.append(value)
        self._keys.append("")
        if bracket == "{":
            self._key()
        return _OPENED

    def _is_last(self, value: Any) -> bool:
        """Add a value to the innermost list or object; return whether that one ends after the value."""
        here = self._open[-1]
        if is_object := isinstance(here, dict):
            here[self._keys[-1]] = value
        else:
            here.append(value)
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
        if key in self._open[-1]:
            self._fail(f"the key {_short(key)} stands twice in one object", start)
        if self._space() != ":":
            self._fail(f"{self._shown()} stands where a colon has to follow")
        self._at += 1
        self._keys[-1] = key

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            sound = _SOUND.match(self._text, self._at)
            end = sound.end() if sound else self._at
            char = self._text[end : end + 1]
            if not char:
                self._fail("the document ends within the string that begins here")
            if char == "\\":
                self._fail(f"{self._text[end : end + 2]!r} begins no escape that JSON has", end)
            self._fail(f"the control character {char!r} stands in a string; write \\u{ord(char):04x}", end)
        start, self._at = self._at, match.end()
        string: str = json.loads(match[0])
        if _SURROGATE.search(string):
            self._fail(f"the string {_short(string)} has half a surrogate pair", start)
        return string

    def _number(self) -> int | float | Decimal:
        word = _WORD.match(self._text, self._at)
        text = word[0] if word else ""
        if not _NUMBER.fullmatch(text):
            self._fail(f"{_short(text)} is no JSON number")
        try:
            value = _number(text, self._limits)
        except ValueError as error:
            self._fail(str(error))
        self._at += len(text)
        return value

    def _space(self) -> str:
        """Step over white space; return the next character, "" at the end."""
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


def to_json(value: Any, *, encoding: str = "utf-8", indent: int | None = None) -> str:
    """Return JSON text. Outside UTF encodings, non-ASCII is escaped; -inf becomes the string "-inf"."""
    is_ascii = not encoding.lower().replace("-", "").startswith("utf")
    write = partial(json.dumps, ensure_ascii=is_ascii, allow_nan=False)
    value = _without_inf(value)
    return write(value) if indent is None else _indented(value, write, " " * indent, "\n")


def _indented(value: Any, write: Callable[..., str], step: str, line: str) -> str:
    """Return what `json` writes with an indent, but long flat lists without a call for each item."""
    inner = line + step
    if isinstance(value, dict) and value:
        # A dict of one key, because `json` turns keys that are no strings into strings.
        items = (
            write({key: None})[1:-5] + _indented(item, write, step, inner) for key, item in value.items()
        )
        return "{" + inner + f",{inner}".join(items) + line + "}"
    if isinstance(value, list) and value:
        if _is_flat(value):
            text = write(value, separators=(f",{inner}", ": "))[1:-1]
        else:
            text = f",{inner}".join(_indented(item, write, step, inner) for item in value)
        return "[" + inner + text + line + "]"
    return write(value)


def _is_flat(items: Sequence[Any]) -> bool:
    return {type(item) for item in items} <= {str, int, bool, type(None)}


def as_float(value: Decimal) -> float | str:
    """Return the float nearest to a number that no float represents; its text if that is infinite."""
    return float(value) if math.isfinite(float(value)) else str(value)


def _without_inf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_inf(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if _is_flat(value) else [_without_inf(item) for item in value]
    if isinstance(value, Decimal):
        return as_float(value)
    return "-inf" if isinstance(value, float) and value == -math.inf else value
