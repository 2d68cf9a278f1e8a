"""The planner: turns a schema, grammar or other structure into the specification of an output."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gencli.errors import ConfigError, UsageError
from gencli.files import read_file
from gencli.json_text import parse_json
from gencli.structured.output_spec import DOCUMENTS, OutputSpec, Plan, PlanRequest
from gencli.structured.schema_inputs import named_file

if TYPE_CHECKING:
    from gencli.structured.tool_calls import Schemas

_MAX_BYTES = 4 << 20  # bytes of a file


def plan_output(kind: str, value: Any, request: PlanRequest | None = None, *, name: str = "") -> OutputSpec:
    """Plan how outputs of one kind of structure (one of KINDS) are enforced and read.

    `value`: value of an option of this kind, either the structure itself or the name of a file. `name`: name
    of the option in errors. Raises ConfigError for an invalid file, schema or grammar, UsageError for a back
    end that cannot run it.
    """
    request = request or PlanRequest()
    if kind in DOCUMENTS:
        spec = _document(kind, value, request)
    else:
        if kind == "tools":
            spec = _tools(value, request)
        else:
            choices = tuple(value) if kind == "choice" else ()
            spec = OutputSpec(kind, _plain(kind, value, request), choices=choices)
        spec = replace(spec, plan=_on_backend(spec.plan, request.backend, name or kind))
    return replace(
        spec,
        plan=replace(spec.plan, seconds=request.deadline.left),
        is_document=kind in DOCUMENTS
        or (kind == "tools" and (spec.has_answer or request.tool_choice != "auto")),
        has_formats=request.has_formats,
    )


def _document(kind: str, value: Any, request: PlanRequest) -> OutputSpec:
    if kind == "json":
        schema = {"type": "object"}
        return OutputSpec(kind, _choose(schema, request), read=parse_json, schema=schema)
    if kind == "pydantic":
        from gencli.structured.schema_inputs import load_model

        model = load_model(value)
        spec = _checked(kind, model.schema(), request)
        return replace(spec, plan=replace(spec.plan, check=model))
    from gencli.structured.schema_source import read_schema

    return _checked(kind, read_schema(value), request)


def _checked(kind: str, schema: Any, request: PlanRequest) -> OutputSpec:
    from gencli.structured.schema_check import check_schema

    notice = "\n".join(check_schema(schema, request.deadline))
    return OutputSpec(kind, _choose(schema, request), read=parse_json, notice=notice, schema=schema)


def _choose(schema: Any, request: PlanRequest) -> Plan:
    from gencli.structured.audit import without_formats
    from gencli.structured.backend_choice import choose

    plan = choose(schema, request)
    return plan if request.has_formats else without_formats(plan)


def _plain(kind: str, value: Any, request: PlanRequest) -> Plan:
    """Return the plan of a structure whose outputs are checked as text."""
    if kind == "structural_tag":
        from gencli.structured.structural_tags import plan_structural_tag

        return plan_structural_tag(_text(kind, value, request), _schemas(request))
    from gencli.structured.text_plans import plan_choices, plan_grammar, plan_lark, plan_regex

    if kind == "choice":
        return plan_choices(value)
    if kind == "regex":
        return plan_regex(value)
    return (plan_grammar if kind == "grammar" else plan_lark)(_text(kind, value, request))


def _schemas(request: PlanRequest) -> Schemas:
    from gencli.structured.tool_calls import Schemas

    return Schemas(partial(_choose, request=request), request.deadline)


def _tools(value: str, request: PlanRequest) -> OutputSpec:
    from gencli.models.files.model_card import declared_template
    from gencli.structured.tool_plans import plan_tools

    text = _text("tools", value, request)
    template, special = declared_template(request.model)
    answer = None
    if request.answer is not None and request.tool_choice == "auto":
        from gencli.structured.schema_check import check_schema
        from gencli.structured.schema_source import read_schema

        answer = read_schema(request.answer)
        check_schema(answer, request.deadline)
    return plan_tools(
        text, _schemas(request), template=template, choice=request.tool_choice, special=special, answer=answer
    )


def _on_backend(plan: Plan, backend: str, name: str) -> Plan:
    """Return the plan with only the variants for the requested back end."""
    if backend == "auto":
        return plan
    kept = tuple(variant for variant in plan.variants if variant.constraint.backend == backend)
    if not kept:
        raise UsageError(f"`grammar_backend` = {backend} does not run {name}. {plan.reason}")
    return replace(plan, variants=kept, reason=f"{backend} was asked for.")


def _text(kind: str, value: str, request: PlanRequest) -> str:
    """Return the text of the file that the value names, or the value itself."""
    path = named_file(kind, value)
    if path is None:
        return value
    try:
        return read_file(path, _MAX_BYTES, pipes=request.pipes).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.") from None
