"""From what an option was given to a plan: files are read, schemas and grammars checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from gencli.config.options.structure import DOCUMENTS
from gencli.errors import ConfigError, UsageError
from gencli.files import read_file
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.files import named_file
from gencli.structured.plan import Plan

__all__ = ["PlanRequest", "PlanResult", "make_plan"]

_MAX_BYTES = 4 << 20  # of a file


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked for beside the structure itself.

    `extra` lets objects have properties that the schema does not name; with `any_order` properties come in
    any order. `model` is the one whose form of tool calls is wanted, `tool_choice` is auto,
    required or a tool's name.
    `has_formats`: the final check looks at formats. `pipes`: a file may be a pipe, for a user names it.
    All has to be done by `deadline`.
    """

    backend: str = "auto"
    whitespace: int = 8
    extra: bool = False
    any_order: bool = False
    model: str = "tiny"
    tool_choice: str = "auto"
    has_formats: bool = False
    pipes: bool = False
    deadline: Deadline = NEVER


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, how the value of a finished text is read, a notice, and the tools to tell the model of."""

    plan: Plan
    read: Callable[[str], Any] | None = None
    notice: str = ""
    tools: tuple[Any, ...] = ()


def make_plan(kind: str, value: Any, asked: PlanRequest, *, said: str) -> PlanResult:
    """The plan of one kind of structure. `said` names the option in errors.

    ConfigError for a file, schema or grammar that is wrong, UsageError for a back end that cannot run it.
    """
    if kind in DOCUMENTS:
        planned = _document(kind, value, asked)
    else:
        planned = _tools(value, asked) if kind == "tools" else PlanResult(_plain(kind, value, asked))
        planned = replace(planned, plan=_on_backend(planned.plan, asked.backend, said))
    return replace(planned, plan=replace(planned.plan, seconds=asked.deadline.left))


def _document(kind: str, value: Any, asked: PlanRequest) -> PlanResult:
    from gencli.structured.schema.document import parse

    if kind == "json":
        return PlanResult(_choose({"type": "object"}, asked), parse)
    if kind == "pydantic":
        from gencli.structured.schema.models import load_model

        model = load_model(value)
        planned = _checked(model.schema(), asked)
        return replace(planned, plan=replace(planned.plan, check=model))
    from gencli.structured.schema.source import read_schema

    return _checked(read_schema(value), asked)


def _checked(schema: Any, asked: PlanRequest) -> PlanResult:
    from gencli.structured.schema.check import check_schema
    from gencli.structured.schema.document import parse

    remarks = check_schema(schema, asked.deadline)
    return PlanResult(_choose(schema, asked), parse, "\n".join(remarks))


def _choose(schema: Any, asked: PlanRequest) -> Plan:
    from gencli.structured.audit.audit import without_formats
    from gencli.structured.audit.choose import choose

    plan = choose(
        schema,
        cast(Any, asked.backend),
        whitespace=asked.whitespace,
        extra=asked.extra,
        any_order=asked.any_order,
        deadline=asked.deadline,
    )
    return plan if asked.has_formats else without_formats(plan)


def _plain(kind: str, value: Any, asked: PlanRequest) -> Plan:
    """Text that is checked as text."""
    if kind == "choice":
        from gencli.structured.notations.choices import plan_choices

        return plan_choices(value)
    if kind == "regex":
        from gencli.structured.notations.regexes import plan_regex

        return plan_regex(value)
    if kind == "structural_tag":
        from gencli.structured.calls.embedded import Schemas
        from gencli.structured.calls.tags import plan_structural_tag
        from gencli.structured.schema.validate import Validator

        schemas = Schemas(partial(_choose, asked=asked), Validator, asked.deadline)
        return plan_structural_tag(_text(kind, value, asked), schemas)
    from gencli.structured.notations.grammars import plan_grammar, plan_lark

    return (plan_grammar if kind == "grammar" else plan_lark)(_text(kind, value, asked))


def _tools(value: str, asked: PlanRequest) -> PlanResult:
    from gencli.models.files.template import declared_template
    from gencli.structured.calls.embedded import Schemas
    from gencli.structured.calls.tools import plan_tools
    from gencli.structured.schema.document import parse
    from gencli.structured.schema.validate import Validator

    text = _text("tools", value, asked)
    template, special = declared_template(asked.model)
    schemas = Schemas(partial(_choose, asked=asked), Validator, asked.deadline)
    found = plan_tools(text, schemas, template=template, choice=asked.tool_choice, special=special)

    def calls(output: str) -> list[dict[str, Any]]:
        return [{"name": call.name, "arguments": call.arguments} for call in found.calls(output)]

    return PlanResult(found.plan, calls, found.notice, tuple(parse(text)))


def _on_backend(plan: Plan, backend: str, said: str) -> Plan:
    """Only what runs on the back end that was asked for."""
    if backend == "auto":
        return plan
    kept = tuple(variant for variant in plan.variants if variant.constraint.backend == backend)
    if not kept:
        raise UsageError(f"--grammar-backend {backend} does not run {said}. {plan.reason}")
    return replace(plan, variants=kept, reason=f"{backend} was asked for.")


def _text(kind: str, given: str, asked: PlanRequest) -> str:
    """The text of the file that was given, or the text that was given itself."""
    path = named_file(kind, given)
    return given if path is None else _read(path, pipes=asked.pipes)


def _read(path: Path, *, pipes: bool) -> str:
    try:
        return read_file(path, _MAX_BYTES, pipes=pipes).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.") from None
