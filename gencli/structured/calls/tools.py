"""The option `tools`: calls of given functions, in the format of the chat template if it is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gencli.json_reader import DocumentError, parse_json
from gencli.structured.calls.embedded import Schemas, ValueCheck, check_inside
from gencli.structured.calls.tool_formats import GENERIC, Call, ToolFormat, detect_format, parse_calls
from gencli.structured.calls.tool_grammars import Tool, tool_variants
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.plan import Plan, TextCheck
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import refs_in, walk
from gencli.structured.validate.select import compact
from processors.errors import nearest

__all__ = ["Calls", "ToolCheck", "ToolPlan", "plan_tools", "read_tools"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIELDS = ("name", "description", "parameters", "strict")


@dataclass(frozen=True, slots=True)
class ToolCheck(TextCheck):
    """Parses the calls of a finished output and checks each against the parameters of its tool.

    With `answer` an output without calls is checked as a JSON document.
    """

    form: ToolFormat
    checks: dict[str, ValueCheck]
    is_required: bool
    answer: ValueCheck | None = None

    def faults(self, text: str) -> tuple[str, ...]:
        if self.answer is not None and not self.calls(text):
            return self.answer.faults(parse_json(text))
        calls, faults = parse_calls(text, self.form)
        return (*faults, *self._faults(calls))

    def calls(self, text: str) -> tuple[Call, ...]:
        """Return the calls of an output; an answer, which may look like a call, names no tool."""
        calls, _ = parse_calls(text, self.form)
        return calls if self.answer is None or all(call.name in self.checks for call in calls) else ()

    def _faults(self, calls: tuple[Call, ...]) -> Iterator[str]:
        if self.is_required and not calls:
            yield "There is no tool call."
        if len(calls) > 1 and not self.form.is_parallel:
            yield f"There are {len(calls)} tool calls; the format {self.form.name} has one."
        for call in calls:
            if call.name not in self.checks:
                yield f"There is no tool {call.name!r}. {nearest(call.name, self.checks)}"
                continue
            for fault in self.checks[call.name].faults(call.arguments):
                yield f"The arguments of {call.name!r}: {fault}"


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """The plan of tool calls, their format, and a notice if it is not the model's own format."""

    plan: Plan
    form: ToolFormat
    check: ToolCheck
    notice: str = ""

    def value(self, text: str) -> Any:
        """Return the calls of a finished output, or the document that is its answer."""
        calls = self.check.calls(text)
        if self.check.answer is not None and not calls:
            return parse_json(text)
        return Calls({"name": call.name, "arguments": call.arguments} for call in calls)


class Calls(list[dict[str, Any]]):
    """The value of an output that is tool calls: each has its name and its arguments."""


def plan_tools(
    text: str,
    schemas: Schemas,
    *,
    template: str | None = None,
    choice: str = "auto",
    special: frozenset[str] = frozenset(),
    answer: Any = None,
) -> ToolPlan:
    """Return the plan for calls of a JSON list of tools.

    `choice`: auto (text or calls), required (calls), or the name of the tool that is called once. `template`:
    the chat template. `special`: texts of special tokens. `answer`: with auto, the schema of an output that
    is no call. Raises SchemaError with a JSON pointer for an invalid list.
    """
    tools = _chosen(read_tools(text, schemas.deadline), choice)
    form, notice = detect_format(template, special)
    checks = {tool.name: schemas.check(tool.parameters) for tool in tools}
    answer = answer if choice == "auto" else None
    check = ToolCheck(form, checks, choice != "auto", None if answer is None else schemas.check(answer))
    if form == GENERIC and choice != "auto":
        schema = _union(tools)
        chosen = schemas.choose(schema)
        return ToolPlan(Plan(chosen.variants, chosen.reason, chosen.schema, check), form, check, notice)
    variants = tool_variants(form, tools, choice, schemas, answer)
    if not variants:
        raise SchemaError("No back end can enforce the parameters of these tools.")
    reason = f"{variants[0].audit.backend} enforces more of the parameters, or the same and faster."
    return ToolPlan(Plan(variants, reason, check=check), form, check, notice)


def read_tools(text: str, deadline: Deadline = NEVER) -> tuple[Tool, ...]:
    """Read the tools of a JSON list in OpenAI's format. Raises SchemaError with a JSON pointer."""
    try:
        values = parse_json(text)
    except DocumentError as error:
        raise SchemaError(f"The list of tools is no JSON document: {error.about(text)}") from None
    if not isinstance(values, list) or not values:
        hint = 'It has the form [{"type": "function", "function": {"name": ..., "parameters": {...}}}].'
        raise SchemaError("A list of at least one tool is expected.", hint=hint)
    tools: dict[str, Tool] = {}
    for number, value in enumerate(values):
        tool = _tool(value, child("", number), deadline)
        if tool.name in tools:
            raise SchemaError(f"There are two tools {tool.name!r}.", pointer=tool.pointer)
        tools[tool.name] = tool
    return tuple(tools.values())


def _tool(value: Any, pointer: str, deadline: Deadline) -> Tool:
    if not isinstance(value, dict) or value.get("type", "function") != "function":
        raise SchemaError(f'A tool of the type "function" is expected at {pointer}.', pointer=pointer)
    inner = value.get("function", {key: item for key, item in value.items() if key != "type"})
    if "function" in value:
        pointer = child(pointer, "function")
        _refuse_others(value, ("type", "function"), pointer)
    if not isinstance(inner, dict):
        raise SchemaError(f"An object is expected at {pointer}.", pointer=pointer)
    _refuse_others(inner, _FIELDS, pointer)
    name = inner.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        what = f"The name of the tool at {pointer} is {name!r}"
        raise SchemaError(f"{what}; it has 1 to 64 of A-Z a-z 0-9 _ . -", pointer=child(pointer, "name"))
    return Tool(name, _parameters(inner, pointer, deadline), child(pointer, "parameters"))


def _parameters(inner: dict[str, Any], pointer: str, deadline: Deadline) -> dict[str, Any]:
    empty = {"properties": {}, "additionalProperties": False}
    given = inner.get("parameters", empty)
    if not isinstance(given, dict) or given.get("type", "object") != "object":
        place = child(pointer, "parameters")
        raise SchemaError(f"The parameters at {place} are the schema of an object.", pointer=place)
    check_inside(given, child(pointer, "parameters"), deadline)
    return {"type": "object", **given}


def _refuse_others(value: dict[str, Any], known: tuple[str, ...], pointer: str) -> None:
    for name in value.keys() - set(known):
        hint = nearest(name, known)
        raise SchemaError(f"A tool has no field {name!r}, at {pointer}.", pointer=pointer, hint=hint)


def _chosen(tools: tuple[Tool, ...], choice: str) -> tuple[Tool, ...]:
    if choice in ("auto", "required"):
        return tools
    chosen = tuple(tool for tool in tools if tool.name == choice)
    if not chosen:
        names = ["auto", "required", *(tool.name for tool in tools)]
        raise SchemaError(f"There is no tool {choice!r} to choose.", hint=nearest(choice, names))
    return chosen


def _union(tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Return the schema of one call as plain JSON."""
    calls = [_call_schema(tool) for tool in tools]
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    # Not all back ends resolve a reference through a list, so recursive parameters are moved to the root.
    moved = {tool.name: _moved(tool) for tool in tools if _refers(tool)}
    return {**schema, "$defs": moved} if moved else schema


def _call_schema(tool: Tool) -> dict[str, Any]:
    arguments = {"$ref": f"#/$defs/{tool.name}"} if _refers(tool) else tool.parameters
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _refers(tool: Tool) -> bool:
    return any(refs_in(part) for _, part in walk(tool.parameters))


def _moved(tool: Tool) -> Any:
    """Return the parameters with references to themselves moved below the root's definitions."""
    copy = parse_json(compact(tool.parameters))
    for _, part in walk(copy) if "$id" not in copy else ():
        ref = part.get("$ref") if isinstance(part, dict) else None
        if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
            part["$ref"] = f"#/$defs/{tool.name}{ref[1:]}"
    return copy
