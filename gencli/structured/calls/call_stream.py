"""Incremental parser of tool calls in streamed text: the name of each call, then parts of its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gencli.structured.calls.tool_formats import ToolFormat
from gencli.structured.validate.thinking import ThinkingSplitter

__all__ = ["CallPart", "CallStream", "Found"]


@dataclass(frozen=True, slots=True)
class CallPart:
    """Increment of tool call `number`, from 0: first its name alone, then pieces of its arguments.

    The joined arguments are JSON exactly as the model wrote it.
    """

    number: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Text before the first call, and parts of calls, as far as the output so far determines them."""

    text: str = ""
    calls: tuple[CallPart, ...] = ()


class CallStream:
    """Parses the tool calls of one output; the result does not depend on how the text is cut into pieces.

    `has_only_calls`: the output has no free text. `has_one`: calls after the first are ignored. Text after
    the first call is ignored, and white space before it. A call-like text without a name is text, unless
    it was cut. `count`: calls with a name so far. `is_whole`: no such call is incomplete. `is_over`: later
    calls are ignored.
    """

    def __init__(self, form: ToolFormat, *, has_only_calls: bool = False, has_one: bool = False) -> None:
        self._form, self._has_one, self._has_only_calls = form, has_one, has_only_calls
        self._has_json_trigger = form.begin.startswith(form.trigger) and not form.json_at
        self._free: ThinkingSplitter | None = ThinkingSplitter(form.trigger)
        if has_only_calls and self._has_json_trigger:  # the white space may differ from the trigger's
            self._free = None
        self._space = ""  # white space that may precede a call
        self._unnamed = ""  # text since the trigger, until the first call has a name
        self._call: _Call | None = None
        self.count = 0
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether every call with a name is complete."""
        return self._call is None or not self._call.name

    def feed(self, text: str) -> Found:
        """Add a piece of text; return the text and call parts that it completes."""
        before, text = self._before(text)
        if self.count == 0 and self._free is None:
            self._unnamed += text
        return Found(before, tuple(self._parts(text)))

    def finish(self) -> Found:
        """Return the held text at the end of the output; a call that was cut before its name is none."""
        is_cut = self._free is None and not self.is_over
        if self.count or is_cut or self._has_only_calls:
            return Found()
        return Found(self._space + (self._free.finish().thinking if self._free else self._unnamed))

    def _before(self, text: str) -> tuple[str, str]:
        """Return the free text that a piece completes, without white space at its end, and the rest."""
        if self._free is None or self.count:
            return "", text
        free, rest = self._search(text)
        whole = self._space + free
        kept = whole.rstrip()
        self._space = whole[len(kept) :]
        return kept, rest

    def _search(self, text: str) -> tuple[str, str]:
        """Search the trigger; return the text before it, and the text from it on."""
        assert self._free is not None
        pieces = self._free.feed(text)
        if not self._free.is_over:
            return pieces.thinking, ""
        self._free = None
        if not self.count:
            self._unnamed = "" if self._has_json_trigger else self._form.trigger
        head = self._form.trigger if self._has_json_trigger else ""
        return pieces.thinking.removesuffix(self._form.trigger), head + pieces.rest

    def _parts(self, text: str) -> Iterator[CallPart]:
        """Yield the call parts in a text after a trigger or a call."""
        while text and not self.is_over:
            if self._free is not None:
                text = self._search(text)[1]
            elif self._call is None:
                text = self._to_call(text)
            else:
                is_new = not self._call.name
                arguments, rest = self._call.feed(text)
                if is_new and self._call.name:
                    self.count += 1
                    yield CallPart(self.count - 1, self._call.name)
                if arguments:
                    yield CallPart(self.count - 1, arguments=arguments)
                if self._call.is_over:
                    self._end_call()
                text = rest

    def _to_call(self, text: str) -> str:
        """Begin the next call at its object; other text than separators before it ends the calls."""
        rest = text.lstrip(" \t\r\n[," if self._form.opening else " \t\r\n")
        if rest.startswith("{"):
            self._call = _Call(self._form.key)
        else:
            self.is_over = bool(rest)
        return rest

    def _end_call(self) -> None:
        """End the call; if it has no name, it is no call, and the rest is ignored."""
        has_name = self._call is not None and bool(self._call.name)
        self.is_over = not has_name or self._has_one or not self._form.is_parallel
        self._call = None
        if not self.is_over and not self._form.opening:
            self._free = ThinkingSplitter(self._form.trigger)


class _Call:
    """Parses one call: a JSON object with `name` and, under `key`, the arguments.

    `is_over`: its last brace was read.
    """

    def __init__(self, key: str) -> None:
        self._arguments_key = key
        self._depth, self._is_text, self._is_escaped = 0, False, False
        self._key: str | None = None  # key of the member whose value is being read
        self._word = ""  # text of the key, or of a value other than the arguments
        self._held: list[str] = []  # arguments that precede the name
        self.name = ""
        self.is_over = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return the part of the arguments in the text, and the text after the call."""
        end = len(text)
        for at, char in enumerate(text):
            if self._is_argument(char):
                self._held.append(char)
            if self.is_over:
                end = at + 1
                break
        if not self.name:
            return "", text[end:]
        arguments = "".join(self._held)
        self._held.clear()
        return arguments, text[end:]

    def _is_argument(self, char: str) -> bool:
        """Process a character; return whether it belongs to the arguments."""
        is_between = self._depth == 1 and not self._is_text
        is_first = self._depth == 0
        self._nest(char)
        if is_first or (is_between and self._ends_word(char)):
            return False
        if self._key == self._arguments_key:
            return True
        self._word += char
        return False

    def _nest(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._is_text:
            self._is_escaped = char == "\\"
            self._is_text = char != '"'
        elif char == '"':
            self._is_text = True
        else:
            self._depth += (char in "{[") - (char in "}]")

    def _ends_word(self, char: str) -> bool:
        """Whether a character outside of keys and values of the call ends one of them."""
        if char == ":" and self._key is None:
            self._key, self._word = str(_value(self._word)), ""
        elif char in ",}":
            if self._key == "name" and isinstance(found := _value(self._word), str):
                self.name = found
            self._key, self._word = None, ""
            self.is_over = char == "}"
        else:
            return char in " \t\r\n"
        return True


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return None
