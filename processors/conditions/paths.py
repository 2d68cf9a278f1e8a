"""Incremental JSON scanner: which of some JSON pointers the next byte of a text is inside of.

The scanner follows nesting, strings and escapes without checking a grammar: at a byte that JSON does not
allow it ends, and no path holds from then on. Its states are immutable, so drafts are tried without a copy;
their size is bounded by the depth of the text and the longest key of a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from processors.conditions.when import ANY_KEY, keys_of

__all__ = ["JsonPaths", "JsonState"]

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
    place: int
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
        """Return the state before the text."""
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
                found = _PLAIN.match(data, at)
                end = found.end() if found else at
                state = self._in_string(state, data[at:end], data[end : end + 1])
                at = end + 1
            elif mode == "scalar":
                found = _SCALAR.match(data, at)
                at = found.end() if found else at
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
            inner = inner._replace(place=inner.place + 1)
            if inner.is_object:
                return JsonState("member", inner.hits, inner)
            return JsonState("value", self._below(inner.hits, str(inner.place)), inner)
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
        if byte == ord("]") and inner is not None and not inner.is_object and not inner.place:
            return self._leave(state._replace(inner=inner.outer))
        if _SCALAR.fullmatch(bytes((byte,))):
            return state._replace(mode="scalar")
        return self._over()

    def _leave(self, state: JsonState) -> JsonState:
        """Return the state after a value: inside its enclosing container again."""
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
