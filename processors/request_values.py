"""Torch-free values of a request and scanners of its bytes: `When` (the condition of a stage),
`Constraint` (a grammar as text), `Verification` (the policy for drafts), `Marker`, JSON paths, Aho-
Corasick matching.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from processors.errors import ParamError, nearest, shown_value

if TYPE_CHECKING:
    from processors.base import Vocabulary


THINKING = ("<think>", "</think>")  # the tags meant by `thinking`
ANY_KEY = "*"  # the path segment that matches any key or index
_WORD = "thinking"
_KEYS = ("from", "to", "inside", "outside", "after", "path")
_MAX_COUNT = 2**31 - 1
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
        when = cls(
            _number("from", value.get("from", 0)),
            None if value.get("to") is None else _number("to", value["to"]),
            _tags("inside", value.get("inside")),
            _tags("outside", value.get("outside")),
            _text("after", value["after"]) if "after" in value else "",
            value.get("path"),
        )
        when._check()
        return when

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
        parts = {
            "from": self.begin or None,
            "to": self.end,
            "inside": _WORD if self.inside == THINKING else self.inside and list(self.inside),
            "outside": _WORD if self.outside == THINKING else self.outside and list(self.outside),
            "after": self.after or None,
            "path": self.path,
        }
        return {key: value for key, value in parts.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(
            f"{key} {' ... '.join(map(repr, value)) if isinstance(value, list) else value}"
            for key, value in self.to_mapping().items()
        )


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
    if isinstance(value, int) and abs(value) > _MAX_COUNT:
        return "a very large number"
    text = shown_value(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _number(key: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
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


_Mode = Literal["value", "string", "escape", "scalar", "member", "key", "key escape", "colon", "next", "over"]
_SPACE, _QUOTE, _BACKSLASH = b" \t\n\r", ord('"'), ord("\\")
_PLAIN = re.compile(rb'[^"\\]*')
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]*")
_ESCAPED = 6  # bytes of an escaped UTF-16 unit, \u0000; a byte of a key has no longer spelling
_FAILED = -1


class _Container(NamedTuple):
    """An open object or array: its hits, its number of commas so far, and its enclosing container."""

    is_object: bool
    hits: tuple[int, ...]
    position: int
    outer: _Container | None


class JsonState(NamedTuple):
    """State of the scanner: mode, innermost container, and how much of each path is matched.

    `hits`: for each path the number of matched segments, or _FAILED. `key`: the bytes of a key so far.
    """

    mode: _Mode
    hits: tuple[int, ...]
    inner: _Container | None = None
    key: bytes = b""


class JsonPaths:
    """Scans a JSON text for several JSON pointers; the segment * matches any key or index."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._segments = [keys_of(path) for path in paths]
        self._lengths = tuple(map(len, self._segments))
        keys = [len(key.encode(errors="replace")) for segments in self._segments for key in segments]
        self._longest = _ESCAPED * max(keys, default=0)

    def first(self) -> JsonState:
        return JsonState("value", (0,) * len(self._segments))

    def holds(self, state: JsonState, path: int) -> bool:
        """Whether the next byte belongs to the value at a path, given by index."""
        return state.hits[path] == self._lengths[path]

    def next(self, state: JsonState, data: bytes) -> JsonState:
        """Return the state after these bytes."""
        at = 0
        while at < len(data):
            mode = state.mode
            if mode == "over":
                return state
            if mode in ("string", "key"):
                plain = _PLAIN.match(data, at)
                end = plain.end() if plain else at
                state = self._in_string(state, data[at:end], data[end : end + 1])
                at = end + 1
            elif mode == "scalar":
                scalar = _SCALAR.match(data, at)
                at = scalar.end() if scalar else at
                if at < len(data):
                    state = self._leave(state)
            else:
                state = self._step(state, data[at])
                at += 1
        return state

    def _in_string(self, state: JsonState, text: bytes, sign: bytes) -> JsonState:
        """Return the state in a string or key after plain text and the following quote or backslash."""
        is_key = state.mode == "key"
        key = (state.key + text + (sign if sign == b"\\" else b""))[: self._longest + 1] if is_key else b""
        if sign == b'"':
            return state._replace(mode="colon", key=key) if is_key else self._leave(state)
        if sign == b"\\":
            return state._replace(mode="key escape" if is_key else "escape", key=key)
        return state._replace(key=key)

    def _step(self, state: JsonState, byte: int) -> JsonState:
        """Return the state after one byte that is not plain text of a string."""
        mode, inner = state.mode, state.inner
        if mode == "escape":
            return state._replace(mode="string")
        if mode == "key escape":
            key = (state.key + bytes((byte,)))[: self._longest + 1]
            return state._replace(mode="key", key=key)
        if byte in _SPACE:
            return state
        if mode == "value":
            return self._begin(state, byte)
        assert inner is not None  # the remaining modes occur inside a container only
        if mode == "member" and byte == _QUOTE:
            return state._replace(mode="key", key=b"")
        if mode == "colon" and byte == ord(":"):
            return JsonState("value", self._below(inner.hits, self._decoded(state.key)), inner)
        if mode == "next" and byte == ord(","):
            inner = inner._replace(position=inner.position + 1)
            if inner.is_object:
                return JsonState("member", inner.hits, inner)
            return JsonState("value", self._below(inner.hits, str(inner.position)), inner)
        if mode in ("next", "member") and byte == (ord("}") if inner.is_object else ord("]")):
            return self._leave(state._replace(inner=inner.outer))
        return self._over()

    def _begin(self, state: JsonState, byte: int) -> JsonState:
        """Return the state after the first byte of a value, or after the end of an empty array."""
        inner = state.inner
        if byte == _QUOTE:
            return state._replace(mode="string")
        if byte == ord("{"):
            return JsonState("member", state.hits, _Container(True, state.hits, 0, inner))
        if byte == ord("["):
            return JsonState("value", self._below(state.hits, "0"), _Container(False, state.hits, 0, inner))
        if byte == ord("]") and inner is not None and not inner.is_object and not inner.position:
            return self._leave(state._replace(inner=inner.outer))
        if _SCALAR.fullmatch(bytes((byte,))):
            return state._replace(mode="scalar")
        return self._over()

    def _leave(self, state: JsonState) -> JsonState:
        inner = state.inner
        return self._over() if inner is None else JsonState("next", inner.hits, inner)

    def _over(self) -> JsonState:
        return JsonState("over", (_FAILED,) * len(self._segments))

    def _below(self, hits: tuple[int, ...], key: str | None) -> tuple[int, ...]:
        """Return the hits of the value at a key or index of a container; None stands for a key in no path."""
        return tuple(
            hit
            if hit in (_FAILED, len(segments))
            else hit + 1
            if segments[hit] in (ANY_KEY, key)
            else _FAILED
            for hit, segments in zip(hits, self._segments, strict=True)
        )

    def _decoded(self, key: bytes) -> str | None:
        """Return a key without escapes; None for invalid text, or a key longer than those of the paths."""
        if len(key) > self._longest:
            return None
        try:
            return str(json.loads(b'"' + key + b'"', strict=False))
        except ValueError:
            return None


# Limits of JSON in outputs, which masks keep: no grammar knows them, and readers have some.
MAX_NUMBER = 128  # characters of a number
MAX_EXPONENT = 3  # digits of an exponent
MAX_DEPTH = 64  # lists and objects in each other
# A line break and nine levels of two blanks, or four of four. It bounds what a model wastes.
WHITESPACE = 20

GrammarKind = Literal["choice", "json_schema", "regex", "ebnf", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar as text, and the back end it is written for.

    Kinds: `choice` is a JSON list of texts; `json_schema` is JSON; `regex` matches the whole output; `ebnf`
    and `lark` are the dialects of xgrammar and llguidance. `whitespace` is the longest run of white space
    allowed in a JSON document, in characters.
    """

    kind: GrammarKind
    text: str
    backend: str
    whitespace: int = WHITESPACE


Draw = Literal["gumbel", "multinomial", "greedy"]
Policy = Literal["match", "rejection", "lossy-typical", "lossy-threshold"]


@dataclass(frozen=True, slots=True)
class Verification:
    """Policy of verification, with all that is known of it by its name; `processors.verification` runs it.

    `threshold` > 0 is the lowest probability that a policy with `has_threshold` accepts.
    """

    policy: Policy = "match"
    threshold: float = 0.3

    @property
    def is_exact(self) -> bool:
        """Whether the text is that without drafts."""
        return self.policy == "match"

    @property
    def is_drawn(self) -> bool:
        """Whether acceptance is drawn, by the distributions that the drafts are drawn from: never greedy."""
        return self.policy == "rejection"

    @property
    def is_lossy(self) -> bool:
        """Whether the policy changes the distribution of the output."""
        return self.policy.startswith("lossy")

    @property
    def has_threshold(self) -> bool:
        return self.policy == "lossy-threshold"


MATCH = Verification()


_SPACES = 64  # white-space tokens that may follow the text


@dataclass(frozen=True, slots=True)
class Marker:
    """A text, found in any tokenization or as one special token."""

    text: bytes
    ids: tuple[int, ...]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> Marker:
        ids = vocabulary.encode(text, special=False)
        return cls(text.encode(), tuple(ids) if len(ids) == 1 else (), vocabulary)

    def ends(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends with the text, white space aside."""
        return ends_with(
            prompt, self.text, lambda token: self.text if token in self.ids else self._bytes(token)
        )

    def step(self, tail: bytes, token: int) -> bytes | None:
        """Return the last bytes of the text after one more token; None if the marker is complete."""
        text = tail + self._bytes(token)
        return None if token in self.ids or self.text in text else text[1 - len(self.text) or len(text) :]

    def _bytes(self, token: int) -> bytes:
        token_bytes = self.vocabulary.token_bytes
        return token_bytes[token] if token < len(token_bytes) else b""


def ends_with(prompt: Sequence[int], text: bytes, bytes_of: Callable[[int], bytes]) -> bool:
    """Whether the prompt ends with the text, white space aside.

    `bytes_of` returns the bytes of a token: of a special token its text if that is the text looked for, or
    else b"", beyond which nothing is looked at.
    """
    end = b""
    for token in reversed(prompt[-_SPACES - len(text) :]):
        data = bytes_of(token)
        if not data:
            break
        end = data + end
    return end.endswith(text) or (bool(text.strip()) and end.rstrip().endswith(text.rstrip()))


class Automaton:
    """Finds several byte strings at once (Aho and Corasick 1975), as a complete table; state 0 is the start.

    `table[state][byte]`: next state. `fallback[state]`: state of the longest proper suffix. `states`: all
    states, breadth first. `paths`: the states of each text, without the start. `depth[state]`: length of the
    longest suffix of the input that is a prefix of a text. `ending[state]`: length of the longest text that
    ends here; 0 if none does.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._children: list[dict[int, int]] = [{}]
        self.paths = list[list[int]]()
        for text in texts:
            path, state = [], 0
            for byte in text:
                if byte not in self._children[state]:
                    self._children[state][byte] = len(self._children)
                    self._children.append({})
                state = self._children[state][byte]
                path.append(state)
            self.paths.append(path)
        size = len(self._children)
        self.table = [[0] * 256] * size
        self.fallback, self.depth, self.ending = ([0] * size for _ in range(3))
        for path in self.paths:
            for depth, state in enumerate(path, start=1):
                self.depth[state] = depth
            self.ending[path[-1]] = len(path)
        self.states = self._complete()

    def hits(self, data: bytes) -> bool:
        """Whether any of the texts occurs in `data`."""
        state = 0
        for byte in data:
            state = self.table[state][byte]
            if self.ending[state]:
                return True
        return False

    def _complete(self) -> list[int]:
        """Fill the table breadth first: without a child for a byte, a state goes where its fallback goes."""
        order: list[int] = []
        queue = deque([0])
        while queue:
            state = queue.popleft()
            order.append(state)
            row = self.table[self.fallback[state]].copy()
            for byte, child in self._children[state].items():
                self.fallback[child] = row[byte]
                self.ending[child] = self.ending[child] or self.ending[row[byte]]
                row[byte] = child
                queue.append(child)
            self.table[state] = row
        return order
