"""The option `tools`: calls of given functions, in the format of the chat template if it is known; as a
structural tag for xgrammar and as Lark for llguidance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gencli.json_text import DocumentError, parse_json
from gencli.structured.json_schema import refs_in, walk
from gencli.structured.output_spec import Audit, OutputSpec, Plan, TextCheck, Variant
from gencli.structured.schema_errors import NEVER, Deadline, SchemaError, child, compact
from gencli.structured.schema_validator import Validator
from gencli.structured.tool_calls import (
    GENERIC,
    Schemas,
    ToolCall,
    ToolFormat,
    check_inside,
    detect_format,
    embed,
    parse_calls,
)
from processors.errors import nearest
from processors.grammar.json_grammars import as_lark, json_options
from processors.request_values import Constraint

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIELDS = ("name", "description", "parameters", "strict")


@dataclass(frozen=True, slots=True)
class ToolCheck(TextCheck):
    """Parses the calls of a finished output and checks each against the parameters of its tool.

    With `answer` an output without calls is checked as a JSON document.
    """

    form: ToolFormat
    checks: dict[str, Validator]
    is_required: bool
    answer: Validator | None = None

    def faults(self, text: str) -> tuple[str, ...]:
        if self.answer is not None and not self.calls(text):
            return self.answer.faults(parse_json(text))
        calls, faults = parse_calls(text, self.form)
        return (*faults, *self._faults(calls))

    def calls(self, text: str) -> tuple[ToolCall, ...]:
        """Return the calls of an output; an answer, which may look like a call, names no tool."""
        calls, _ = parse_calls(text, self.form)
        return calls if self.answer is None or all(call.name in self.checks for call in calls) else ()

    def value(self, text: str) -> Any:
        """Return the calls of an output, or the document that is its answer."""
        calls = self.calls(text)
        if self.answer is not None and not calls:
            return parse_json(text)
        return Calls({"name": call.name, "arguments": call.arguments} for call in calls)

    def _faults(self, calls: tuple[ToolCall, ...]) -> Iterator[str]:
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
) -> OutputSpec:
    """Return the specification of outputs that call the tools of a JSON list.

    `choice`: auto (text or calls), required (calls), or the name of the tool that is called once. `template`:
    the chat template. `special`: texts of special tokens. `answer`: with auto, the schema of an output that
    is no call. Raises SchemaError with a JSON pointer for an invalid list.
    """
    tools = _chosen(read_tools(text, schemas.deadline), choice)
    form, notice = detect_format(template, special)
    checks = {tool.name: Validator(tool.parameters) for tool in tools}
    answer = answer if choice == "auto" else None
    check = ToolCheck(form, checks, choice != "auto", None if answer is None else Validator(answer))
    if form == GENERIC and choice != "auto":
        plan = replace(schemas.choose(_union(tools)), check=check)
    elif variants := tool_variants(form, tools, choice, schemas, answer):
        reason = f"{variants[0].audit.backend} enforces more of the parameters, or the same and faster."
        plan = Plan(variants, reason, check=check)
    else:
        raise SchemaError("No back end can enforce the parameters of these tools.")
    return OutputSpec(
        "tools",
        plan,
        read=check.value,
        notice=notice,
        tools=tuple(parse_json(text)),
        has_answer=answer is not None,
        schema=answer,
        call_form=form.shape,
    )


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
        fault = f"The name of the tool at {pointer} is {name!r}; it has to be 1 to 64 characters"
        raise SchemaError(f"{fault} of A-Z a-z 0-9 _ . -", pointer=child(pointer, "name"))
    parameters = inner.get("parameters", {"properties": {}, "additionalProperties": False})
    pointer = child(pointer, "parameters")
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise SchemaError(f"The parameters at {pointer} have to be the schema of an object.", pointer=pointer)
    check_inside(parameters, pointer, deadline)
    return Tool(name, {"type": "object", **parameters}, pointer)


def _refuse_others(value: dict[str, Any], fields: tuple[str, ...], pointer: str) -> None:
    for name in value.keys() - set(fields):
        hint = nearest(name, fields)
        raise SchemaError(f"A tool has no field {name!r}, at {pointer}.", pointer=pointer, hint=hint)


def _chosen(tools: tuple[Tool, ...], choice: str) -> tuple[Tool, ...]:
    chosen = tuple(tool for tool in tools if choice in ("auto", "required", tool.name))
    if not chosen:
        names = ["auto", "required", *(tool.name for tool in tools)]
        raise SchemaError(f"There is no tool {choice!r} to choose.", hint=nearest(choice, names))
    return chosen


def _union(tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Return the schema of one call as plain JSON."""
    # Not all back ends resolve a reference through a list, so recursive parameters are moved to the root.
    recursive = [tool for tool in tools if any(refs_in(part) for _, part in walk(tool.parameters))]
    moved = {tool.name: _moved(tool) for tool in recursive}
    calls = []
    for tool in tools:
        arguments = {"$ref": f"#/$defs/{tool.name}"} if tool.name in moved else tool.parameters
        properties = {"name": {"const": tool.name}, "arguments": arguments}
        closed = {"required": ["name", "arguments"], "additionalProperties": False}
        calls.append({"type": "object", "properties": properties, **closed})
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": moved} if moved else schema


def _moved(tool: Tool) -> Any:
    """Return the parameters with references to themselves moved below the root's definitions."""
    copy = parse_json(compact(tool.parameters))
    for _, part in walk(copy) if "$id" not in copy else ():
        ref = part.get("$ref") if isinstance(part, dict) else None
        if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
            part["$ref"] = f"#/$defs/{tool.name}{ref[1:]}"
    return copy


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable function; `pointer` is the place of its parameters in the list of tools."""

    name: str
    parameters: dict[str, Any]
    pointer: str


_Parts = tuple[tuple[Tool, Variant], ...]


def tool_variants(
    form: ToolFormat, tools: tuple[Tool, ...], choice: str, schemas: Schemas, answer: Any = None
) -> tuple[Variant, ...]:
    """Return the variants of a plan for tool calls, variants with fewer open keywords first.

    With the schema `answer` the output is calls or a document of it, and has no free text.
    """
    variants = []
    for backend in ("xgrammar", "llguidance"):
        parts = _parts(tools, backend, schemas)
        document = None if answer is None else embed(answer, "", backend, schemas)
        if parts is None or (answer is not None and document is None):
            continue
        if document and backend == "llguidance" and form.trigger.startswith("{"):
            continue  # its lexer takes the beginning of every document for that of a call
        if backend == "xgrammar":
            tag = {"type": "structural_tag", "format": _structural(form, parts, choice, document)}
            constraint = Constraint("structural_tag", json.dumps(tag, ensure_ascii=False), backend)
        else:
            constraint = Constraint("lark", _lark(form, parts, choice, document), backend)
        embedded = [*(part for _, part in parts), *([document] if document else [])]
        findings = tuple(finding for part in embedded for finding in part.audit.findings)
        variants.append(Variant(constraint, Audit(backend, findings)))
    return tuple(sorted(variants, key=lambda variant: len(variant.audit.open)))


def _parts(tools: tuple[Tool, ...], backend: str, schemas: Schemas) -> _Parts | None:
    parts = []
    for tool in tools:
        part = embed(tool.parameters, tool.pointer, backend, schemas)
        if part is None:
            return None
        parts.append((tool, part))
    return tuple(parts)


def _structural(form: ToolFormat, parts: _Parts, choice: str, answer: Variant | None) -> dict[str, Any]:
    tags = [_tag(form.begin + tool.name + form.middle, _document(part), form.end) for tool, part in parts]
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": form.separator,
        "at_least_one": True,
        "stop_after_first": not (form.is_parallel and choice in ("auto", "required")),
    }
    if choice == "auto" and answer is None:
        return {
            "type": "triggered_tags",
            "triggers": [form.trigger],
            "tags": [_tag(form.opening, calls, form.closing)] if form.opening else tags,
            "stop_after_first": bool(form.opening) or not form.is_parallel,
        }
    if form.opening:
        ends = [{"type": "const_string", "value": text} for text in (form.opening, form.closing)]
        calls = {"type": "sequence", "elements": [ends[0], calls, ends[1]]}
    return calls if answer is None else {"type": "or", "elements": [_document(answer), calls]}


def _tag(begin: str, content: dict[str, Any], end: str) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _document(part: Variant) -> dict[str, Any]:
    schema, space = json.loads(part.constraint.text), part.constraint.whitespace
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": space}


def _lark(form: ToolFormat, parts: _Parts, choice: str, answer: Variant | None) -> str:
    is_auto = choice == "auto" and answer is None
    # In free text the trigger is a lexeme of its own, so the calls begin after it.
    cut = len(form.trigger) if is_auto else 0
    lines = []
    for number, (tool, part) in enumerate(parts):
        begin = (form.begin + tool.name + form.middle)[0 if form.opening else cut :]
        lines.append(f"call_{number}: {_string(begin)} {_arguments(part)} {_string(form.end)}\n")
    lines.append(f"call: {' | '.join(f'call_{number}' for number in range(len(parts)))}\n")
    is_many = form.is_parallel and choice in ("auto", "required")
    more = f"({_string(form.separator)} call)*" if is_many and not (is_auto and not form.opening) else ""
    lines.append(f"calls: {_string(form.opening[cut:])} call {more} {_string(form.closing)}\n")
    if answer is not None:
        return f"start: answer | calls\nanswer: {_arguments(answer)}\n" + "".join(lines)
    if not is_auto:
        return "start: calls\n" + "".join(lines)
    many = is_many and not form.opening
    start = "start: (head calls)* text\n" if many else "start: text | head calls\n"
    head = f"head[lazy]: TEXT {_string(form.trigger)}\n"
    return start + "text: TEXT\nTEXT: /(?s:.*)/\n" + head + "".join(lines)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _arguments(part: Variant) -> str:
    """Return a schema as part of a Lark grammar, with llguidance's options."""
    schema, space = json.loads(part.constraint.text), part.constraint.whitespace
    if (lark := as_lark(schema, space)) is not None:
        return f"%lark {{\n{lark}}}"
    fields = schema if isinstance(schema, dict) else {}
    return f"%json {json.dumps({**fields, 'x-guidance': json_options(space)}, ensure_ascii=False)}"
