"""Tool calls in text: their formats, detected from a chat template, parsers of finished and of streamed
text, and JSON schemas inside other grammars.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gencli.json_text import DocumentError, parse_json
from gencli.structured.output_spec import Plan, ThinkingSplitter, Variant
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import NEVER, Deadline, SchemaError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an output."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A call is begin + name + middle + arguments + end; all calls are enclosed by opening and closing.

    `json_at`: offset in `begin` at which the JSON of a call begins. `trigger`: the text after which free text
    becomes a call.
    """

    name: str
    begin: str
    middle: str
    end: str
    trigger: str
    key: str = "arguments"
    opening: str = ""
    closing: str = ""
    separator: str = ""
    json_at: int = 0
    is_parallel: bool = True

    @property
    def shape(self) -> str:
        """A call as a person would describe it, with names in place of the function and its arguments."""
        call = self.begin + "<function-name>" + self.middle + "<arguments-as-JSON>" + self.end
        return self.opening + call + self.closing


GENERIC = ToolFormat("generic", '{"name": "', '", "arguments": ', "}", '{"name": "', is_parallel=False)
_HERMES = ToolFormat(
    "hermes",
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    "<tool_call>",
    separator="\n",
    json_at=len("<tool_call>\n"),
)
_LLAMA = replace(GENERIC, name="llama3", middle='", "parameters": ', key="parameters")
_MISTRAL = ToolFormat(
    "mistral",
    '{"name": "',
    '", "arguments": ',
    "}",
    "[TOOL_CALLS]",
    opening="[TOOL_CALLS] [",
    closing="]",
    separator=", ",
)

# Substrings of chat templates, most specific first; a text in place of a format names an unsupported one.
_MARKS: tuple[tuple[tuple[str, ...], ToolFormat | str], ...] = (
    (("<tool_call>", "<function="), "Qwen3-Coder's XML"),
    (("<tool_call>", "<arg_key>"), "GLM's XML"),
    (("<|tool_calls_section_begin|>",), "Kimi's"),
    (("<｜tool▁calls▁begin｜>",), "DeepSeek's"),
    (("<minimax:tool_call>",), "MiniMax's"),
    (("<|channel|>", "commentary"), "Harmony"),
    (("[TOOL_CALLS]", "[ARGS]"), "Mistral's with [ARGS]"),
    (("<|tool_call>call:",), "Gemma's"),
    (("<tool_call>",), _HERMES),
    (("[TOOL_CALLS]",), _MISTRAL),
    (("<|start_header_id|>", '"parameters"'), _LLAMA),
    (("<|python_tag|>",), _LLAMA),
)


def detect_format(template: str | None, special: frozenset[str] = frozenset()) -> tuple[ToolFormat, str]:
    """Return the format that a chat template uses, and a notice if it is GENERIC instead.

    `special`: texts of special tokens. The output text has no special tokens, so a format that contains one
    cannot be used.
    """
    for marks, form in _MARKS if template else ():
        if all(mark in (template or "") for mark in marks):
            if isinstance(form, str):
                return GENERIC, f"The template's format ({form}) is not known here; calls are plain JSON."
            needed = (form.opening + form.begin + form.end).strip()
            lost = next((token for token in sorted(special) if token and token in needed), None)
            if lost:
                return GENERIC, f"{lost} of the format {form.name} is a special token; calls are plain JSON."
            return form, ""
    return GENERIC, "The chat template names no format of tool calls; calls are plain JSON."


def parse_calls(text: str, form: ToolFormat) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """Return the calls of a finished output in order, and the faults of the output."""
    if form.opening:
        return _parse_list(text, form)
    calls, faults, at = [], [], 0
    is_document = not form.json_at and text.lstrip().startswith("{")
    start = text.index("{") if is_document else text.find(form.begin)
    while start >= 0:
        at = json_end(text, start + form.json_at)
        call = _read(text[start + form.json_at : at], form)
        calls += [call] if isinstance(call, ToolCall) else []
        faults += [call] if isinstance(call, str) else []
        if not text.startswith(form.end[1:], at):
            faults.append(f"After a call, {form.end[1:]!r} is missing.")
        start = text.find(form.begin, at)
    if form.trigger in text[at:]:
        faults.append(f"There is {form.trigger!r} where no call begins.")
    return tuple(calls), tuple(faults)


def _parse_list(text: str, form: ToolFormat) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    _, opening, array = text.partition(form.trigger)
    if not opening:
        return (), ()
    try:
        values = parse_json(array)
    except DocumentError as error:
        return (), (f"The list of calls is no JSON: {error.message}",)
    if not isinstance(values, list):
        return (), ("The calls are no list.",)
    read = [_call(value, form) for value in values]
    faults = tuple(item for item in read if isinstance(item, str))
    return tuple(item for item in read if isinstance(item, ToolCall)), faults


def _read(text: str, form: ToolFormat) -> ToolCall | str:
    try:
        return _call(parse_json(text), form)
    except DocumentError as error:
        return f"A call is no JSON: {error.message}"


def _call(value: Any, form: ToolFormat) -> ToolCall | str:
    is_call = isinstance(value, dict) and value.keys() == {"name", form.key}
    if not is_call or not isinstance(value["name"], str):
        return f'A call is an object with "name" and "{form.key}", and nothing else.'
    return ToolCall(value["name"], value[form.key])


@dataclass(frozen=True, slots=True)
class CallPart:
    """Increment of tool call `number`, from 0: first its name alone, then pieces of its arguments.

    The joined arguments are JSON exactly as the model wrote it.
    """

    number: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class FoundCalls:
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
        self._call: _StreamedCall | None = None
        self.count = 0
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether every call with a name is complete."""
        return self._call is None or not self._call.name

    def feed(self, text: str) -> FoundCalls:
        """Add a piece of text; return the text and call parts that it completes."""
        before, text = self._before(text)
        if self.count == 0 and self._free is None:
            self._unnamed += text
        return FoundCalls(before, tuple(self._parts(text)))

    def finish(self) -> FoundCalls:
        """Return the held text at the end of the output; a call that was cut before its name is none."""
        is_cut = self._free is None and not self.is_over
        if self.count or is_cut or self._has_only_calls:
            return FoundCalls()
        return FoundCalls(self._space + (self._free.finish().thinking if self._free else self._unnamed))

    def _before(self, text: str) -> tuple[str, str]:
        """Return the free text that a piece completes, without white space at its end, and the rest."""
        if self._free is None or self.count:
            return "", text
        free, remainder = self._search(text)
        whole = self._space + free
        kept = whole.rstrip()
        self._space = whole[len(kept) :]
        return kept, remainder

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
        return pieces.thinking.removesuffix(self._form.trigger), head + pieces.result

    def _parts(self, text: str) -> Iterator[CallPart]:
        """Yield the call parts in a text after a trigger or a call."""
        while text and not self.is_over:
            if self._free is not None:
                text = self._search(text)[1]
            elif self._call is None:
                text = self._to_call(text)
            else:
                is_new = not self._call.name
                arguments, remainder = self._call.feed(text)
                if is_new and self._call.name:
                    self.count += 1
                    yield CallPart(self.count - 1, self._call.name)
                if arguments:
                    yield CallPart(self.count - 1, arguments=arguments)
                if self._call.is_over:
                    self._end_call()
                text = remainder

    def _to_call(self, text: str) -> str:
        """Begin the next call at its object; other text than separators before it ends the calls."""
        object_text = text.lstrip(" \t\r\n[," if self._form.opening else " \t\r\n")
        if object_text.startswith("{"):
            self._call = _StreamedCall(self._form.key)
        else:
            self.is_over = bool(object_text)
        return object_text

    def _end_call(self) -> None:
        """End the call; if it has no name, it is no call, and the rest is ignored."""
        has_name = self._call is not None and bool(self._call.name)
        self.is_over = not has_name or self._has_one or not self._form.is_parallel
        self._call = None
        if not self.is_over and not self._form.opening:
            self._free = ThinkingSplitter(self._form.trigger)


class _StreamedCall:
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
            if self._key == "name" and isinstance(name := _value(self._word), str):
                self.name = name
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


@dataclass(frozen=True, slots=True)
class Schemas:
    """The function that plans one JSON schema; planning ends by `deadline`."""

    choose: Callable[[Any], Plan]
    deadline: Deadline = NEVER


def check_inside(schema: Any, pointer: str, deadline: Deadline = NEVER) -> None:
    """Raise SchemaError unless the schema at `pointer` can be used.

    The error's JSON pointer refers to the whole document.
    """
    try:
        check_schema(schema, deadline)
    except SchemaError as error:
        message = f"The schema at {pointer}: {error.message}"
        raise SchemaError(message, pointer=pointer + error.pointer, hint=error.hint) from None


def embed(schema: Any, pointer: str, backend: str, schemas: Schemas) -> Variant | None:
    """Return the variant of a schema for a back end, or None if the back end does not support it.

    The findings are moved to `pointer`. Inside a tag xgrammar generates only properties and items that the
    schema mentions, a subset of the valid values.
    """
    for variant in schemas.choose(schema).variants:
        if variant.constraint.backend == backend and variant.constraint.kind == "json_schema":
            return variant.changed(lambda entry: replace(entry, pointer=pointer + entry.pointer))
    return None


def json_end(text: str, start: int) -> int:
    """Return the offset after the JSON value at `start`; the end of the text if it is not JSON."""
    space = len(text) - start - len(text[start:].lstrip(" \t\r\n"))
    try:
        return json.JSONDecoder().raw_decode(text, start + space)[1]
    except (ValueError, RecursionError):
        return len(text)
