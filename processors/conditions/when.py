"""`When`: the condition of a stage, as one hashable value. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from processors.errors import ParamError, nearest, shown_value

__all__ = ["ANY_KEY", "NO_CONDITION", "THINKING", "Tags", "When", "keys_of"]

THINKING = ("<think>", "</think>")  # the tags meant by `thinking`
ANY_KEY = "*"  # the path segment that matches any key or index
_WORD = "thinking"
_KEYS = ("from", "to", "inside", "outside", "after", "path")
_MOST = 2**31 - 1
_LONGEST = 4096  # most characters of a text
_SHOWN = 80  # characters shown of a wrong value

_WHOLE = "it is a promise about the whole output"
_STATE = "it follows every draw of the output"
NO_CONDITION = {  # the stages that allow no condition, and the reason
    "tail": "an id without a token may never be chosen",
    "grammar": "the option `constrain_after` says where its document begins",
    "ban": _WHOLE,
    "min_tokens": _WHOLE,
    "ignore_eos": _WHOLE,
    "force": "it says by itself where it acts",
    "reasoning_budget": "it follows the thinking by itself",
    **dict.fromkeys(("kgw", "synthid", "gumbel_mark"), "a detector looks for its mark in the whole output"),
    "mirostat": _STATE,
    "adaptive_p": _STATE,
}

Tags = tuple[str, str]


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the token that is chosen next. All given parts have to hold.

    `begin` <= number of output tokens before it < `end`. `inside`, `outside`: between two tags, or not; an
    empty first tag means the beginning of the output. `after`: the text has appeared in the output. `path`:
    the token begins inside the value at this JSON pointer of the document that begins with the output, or
    after the text `after`; the segment * matches any key or index.
    """

    begin: int = 0
    end: int | None = None
    inside: Tags | None = None
    outside: Tags | None = None
    after: str = ""
    path: str | None = None

    @classmethod
    def of(cls, value: Any) -> When:
        """Build from parsed YAML or JSON, with the keys from, to, inside, outside, after and path.

        ParamError for a condition that is wrong, or that can never hold.
        """
        if isinstance(value, When):
            return value
        if not isinstance(value, Mapping):
            raise ParamError(f"is {_shown(value)}, but has to be a mapping such as {{from: 10}}.")
        for key in value:
            if key not in _KEYS:
                raise ParamError(f"has no part {key!r}. {nearest(str(key), _KEYS)}")
        found = cls(
            _number("from", value.get("from", 0)),
            None if value.get("to") is None else _number("to", value["to"]),
            _tags("inside", value.get("inside")),
            _tags("outside", value.get("outside")),
            _text("after", value["after"]) if "after" in value else "",
            value.get("path"),
        )
        found._check()
        return found

    def _check(self) -> None:
        if self == When():
            raise ParamError(f"is empty. Give one of {', '.join(_KEYS)}.")
        if self.end is not None and self.end <= self.begin:
            raise ParamError(f"never holds: it is from {self.begin} to {self.end}, which is left out.")
        if self.inside is not None and self.inside == self.outside:
            raise ParamError("never holds: it is inside and outside of the same tags.")
        if self.path is not None:
            if not isinstance(self.path, str) or len(self.path) > _LONGEST:
                raise ParamError(f"has the path {_shown(self.path)}, which is no JSON pointer.")
            try:
                keys_of(self.path)
            except ValueError as error:
                raise ParamError(f"has a path that is no JSON pointer: {error}.") from None

    @property
    def needs_text(self) -> bool:
        """Whether the condition depends on the text and so needs a tokenizer."""
        return bool(self.inside or self.outside or self.after or self.path is not None)

    def to_mapping(self) -> dict[str, Any]:
        """Return the parts that are given; the inverse of `of`."""
        found = {
            "from": self.begin or None,
            "to": self.end,
            "inside": _shown_tags(self.inside),
            "outside": _shown_tags(self.outside),
            "after": self.after or None,
            "path": self.path,
        }
        return {key: value for key, value in found.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{key} {_in_words(value)}" for key, value in self.to_mapping().items())


def _in_words(value: int | str | list[str]) -> str:
    return " ... ".join(map(repr, value)) if isinstance(value, list) else str(value)


def keys_of(pointer: str) -> tuple[str, ...]:
    """Return the keys of a JSON pointer (RFC 6901). Raises ValueError for an invalid pointer."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} does not begin with a slash")
    keys = pointer[1:].split("/")
    if any("~" in key.replace("~0", "").replace("~1", "") for key in keys):
        raise ValueError(f"{pointer!r} has a ~ that is neither ~0 nor ~1")
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in keys)


def _shown(value: Any) -> str:
    """Return a wrong value as messages show it, shortened to one line."""
    if isinstance(value, int) and abs(value) > _MOST:
        return "a very large number"
    text = shown_value(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _number(key: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ParamError(f"has {key} {_shown(value)}, but it counts output tokens from 0.")
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        raise ParamError(f"has {key} {_shown(value)}, but has to have a text that is not empty there.")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ParamError(f"has {key} {_shown(value)}, which is no text.")
    return value


def _tags(key: str, value: Any) -> Tags | None:
    """Return the tags of `thinking` or [start, end]."""
    if value is None:
        return None
    if value == _WORD:
        return THINKING
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(tag, str) for tag in value):
        if value[0] == value[1]:
            raise ParamError(f"has the same start and end for {key}: {_shown(value[0])}.")
        return (_text(key, value[0]) if value[0] else ""), _text(key, value[1])
    raise ParamError(f"has {key} {_shown(value)}, but it is {_WORD} or a list of two tags, start and end.")


def _shown_tags(tags: Tags | None) -> str | list[str] | None:
    return _WORD if tags == THINKING else None if tags is None else list(tags)
