"""`gencli schema audit`: the keywords of a JSON schema that each back end enforces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from gencli.cli.failures import unknown_word
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.records import FORMAT, record_text
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.tables import table
from gencli.config.options.flags import with_flags
from gencli.config.options.option import Option
from gencli.config.options.run import option
from gencli.errors import UsageError
from gencli.structured.output_spec import Finding, Plan, meaning

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli schema audit SCHEMA [OPTIONS]

Check a JSON schema (a file, the text itself, or names as in 'name, age int') and
say which back end would run it, why, and for each keyword whether the mask
enforces it or the check at the end does. Loads no model.
""",
    (
        option("grammar_backend"),
        option("extra_properties"),
        option("property_order"),
        option("formats"),
        option("grammar_timeout"),
        FORMAT,
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "audit SCHEMA",
    ("audit",),
)


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the audit of a schema and return the exit code. Raises SchemaError for an unusable schema."""
    values = values_of(PAGE, given)
    word, *schemas = arguments or [""]
    if word != "audit":
        raise unknown_word("gencli schema", word, ("audit",))
    if len(schemas) != 1:
        raise UsageError("schema audit takes one schema.", hint="Put quotes around it.")
    from gencli.structured.audit import audit_json, without_formats
    from gencli.structured.backend_choice import choose
    from gencli.structured.schema_check import check_schema
    from gencli.structured.schema_errors import Deadline
    from gencli.structured.schema_source import read_schema

    deadline = Deadline.after(values["grammar_timeout"])
    schema = read_schema(schemas[0])
    remarks = check_schema(schema, deadline)
    plan = choose(
        schema,
        cast(Any, values["grammar_backend"]),
        extra=values["extra_properties"],
        any_order=values["property_order"] == "any",
        deadline=deadline,
    )
    plan = plan if values["formats"] else without_formats(plan)
    if values["format"] == "text":
        text = _text(plan) + "".join(f"\n{with_flags(remark)}\n" for remark in remarks)
    else:
        text = record_text({**audit_json(plan), "remarks": remarks}, values["format"])
    Sink().write(text)
    return 0


def _text(plan: Plan) -> str:
    """Return the reason for the choice and a table: a row for each keyword, a column for each back end."""
    names = [variant.audit.backend for variant in plan.variants]
    rows = list(_rows(plan))
    if not rows:
        return f"{with_flags(plan.reason)}\n"
    return f"{with_flags(plan.reason)}\n\n" + table([("pointer", "keyword", *names, "why"), *rows])


def _rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    by_keyword: dict[tuple[str, str], dict[str, Finding]] = {}
    for variant in plan.variants:
        for one in variant.audit.findings:
            by_keyword.setdefault((one.pointer, one.keyword), {})[variant.audit.backend] = one
    for (pointer, keyword), by_backend in by_keyword.items():
        cells = [by_backend.get(variant.audit.backend) for variant in plan.variants]
        reasons: dict[str, list[str]] = {}
        for variant, cell in zip(plan.variants, cells, strict=True):
            if cell and cell.reason:
                reasons.setdefault(cell.reason, []).append(variant.audit.backend)
        yield (
            pointer,
            keyword,
            *(meaning(cell.verdict) if cell else "-" for cell in cells),
            with_flags(_why(reasons, plan)),
        )


def _why(reasons: Mapping[str, Sequence[str]], plan: Plan) -> str:
    """Return the reasons, each prefixed by its back end if it concerns only one of several."""
    several = len(plan.variants) > 1
    return "; ".join(
        f"{names[0]}: {reason}" if several and len(names) == 1 else reason
        for reason, names in reasons.items()
    )
