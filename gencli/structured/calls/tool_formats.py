"""Formats of tool calls: detection from a chat template, and parsing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gencli.json_reader import DocumentError, parse_json
from gencli.structured.calls.embedded import json_end

__all__ = ["GENERIC", "Call", "ToolFormat", "detect_format", "parse_calls"]


@dataclass(frozen=True, slots=True)
class Call:
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
_LLAMA = ToolFormat(
    "llama3", '{"name": "', '", "parameters": ', "}", '{"name": "', key="parameters", is_parallel=False
)
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
    for marks, found in _MARKS if template else ():
        if all(mark in (template or "") for mark in marks):
            if isinstance(found, str):
                return GENERIC, f"The template's format ({found}) is not known here; calls are plain JSON."
            needed = (found.opening + found.begin + found.end).strip()
            lost = next((token for token in sorted(special) if token and token in needed), None)
            if lost:
                return GENERIC, f"{lost} of the format {found.name} is a special token; calls are plain JSON."
            return found, ""
    return GENERIC, "The chat template names no format of tool calls; calls are plain JSON."


def parse_calls(text: str, form: ToolFormat) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    """Return the calls of a finished output in order, and the faults of the output."""
    if form.opening:
        return _parse_list(text, form)
    calls, faults, at = [], [], 0
    is_document = not form.json_at and text.lstrip().startswith("{")
    start = text.index("{") if is_document else text.find(form.begin)
    while start >= 0:
        at = json_end(text, start + form.json_at)
        found = _read(text[start + form.json_at : at], form)
        calls += [found] if isinstance(found, Call) else []
        faults += [found] if isinstance(found, str) else []
        if not text.startswith(form.end[1:], at):
            faults.append(f"After a call, {form.end[1:]!r} is missing.")
        start = text.find(form.begin, at)
    if form.trigger in text[at:]:
        faults.append(f"There is {form.trigger!r} where no call begins.")
    return tuple(calls), tuple(faults)


def _parse_list(text: str, form: ToolFormat) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    _, opening, rest = text.partition(form.trigger)
    if not opening:
        return (), ()
    try:
        values = parse_json(rest)
    except DocumentError as error:
        return (), (f"The list of calls is no JSON: {error.message}",)
    found = (
        [_call(value, form) for value in values] if isinstance(values, list) else ["The calls are no list."]
    )
    calls = tuple(item for item in found if isinstance(item, Call))
    return calls, tuple(item for item in found if isinstance(item, str))


def _read(text: str, form: ToolFormat) -> Call | str:
    try:
        return _call(parse_json(text), form)
    except DocumentError as error:
        return f"A call is no JSON: {error.message}"


def _call(value: Any, form: ToolFormat) -> Call | str:
    if (
        not isinstance(value, dict)
        or value.keys() != {"name", form.key}
        or not isinstance(value["name"], str)
    ):
        return f'A call is an object with "name" and "{form.key}", and nothing else.'
    return Call(value["name"], value[form.key])
