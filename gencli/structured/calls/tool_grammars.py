"""Tool calls as a structural tag for xgrammar and as Lark for llguidance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gencli.structured.calls.embedded import Embedded, Schemas, embed
from gencli.structured.calls.tool_formats import ToolFormat
from gencli.structured.plan import Audit, Variant
from processors.constraint import Constraint
from processors.grammar.backends.json_lark import as_lark, json_options

__all__ = ["Tool", "tool_variants"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable function; `pointer` is the place of its parameters in the list of tools."""

    name: str
    parameters: dict[str, Any]
    pointer: str


_Parts = tuple[tuple[Tool, Embedded], ...]


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
        findings = tuple(finding for part in embedded for finding in part.findings)
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


def _structural(
    form: ToolFormat, parts: _Parts, choice: str, answer: Embedded | None = None
) -> dict[str, Any]:
    tags = [
        {
            "type": "tag",
            "begin": form.begin + tool.name + form.middle,
            "content": _document(part),
            "end": form.end,
        }
        for tool, part in parts
    ]
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": form.separator,
        "at_least_one": True,
        "stop_after_first": not (form.is_parallel and choice in ("auto", "required")),
    }
    if choice == "auto" and answer is None:
        around = {"type": "tag", "begin": form.opening, "content": calls, "end": form.closing}
        return {
            "type": "triggered_tags",
            "triggers": [form.trigger],
            "tags": [around] if form.opening else tags,
            "stop_after_first": bool(form.opening) or not form.is_parallel,
        }
    if form.opening:
        ends = [{"type": "const_string", "value": text} for text in (form.opening, form.closing)]
        calls = {"type": "sequence", "elements": [ends[0], calls, ends[1]]}
    return calls if answer is None else {"type": "or", "elements": [_document(answer), calls]}


def _document(part: Embedded) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": part.schema, "max_whitespace_cnt": part.whitespace}


def _lark(form: ToolFormat, parts: _Parts, choice: str, answer: Embedded | None = None) -> str:
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


def _arguments(part: Embedded) -> str:
    """Return a schema as part of a Lark grammar, with llguidance's options."""
    if (lark := as_lark(part.schema, part.whitespace)) is not None:
        return f"%lark {{\n{lark}}}"
    schema = part.schema if isinstance(part.schema, dict) else {}
    options = json_options(part.whitespace)
    return f"%json {json.dumps({**schema, 'x-guidance': options}, ensure_ascii=False)}"
