"""A typer command whose parameters are made from the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer

from gencli.options import OPTIONS, Option

__all__ = ["flags", "make_command"]

Run = Callable[[list[str], Mapping[str, Any]], int]


def flags() -> list[str]:
    """Every long flag of the table."""
    return [name for entry in OPTIONS for name in "/".join(entry.names).split("/") if name.startswith("--")]


def make_command(run: Run) -> Callable[..., int]:
    """A function that typer can read; it hands on the prompts and the options that were given."""

    def command(prompts: list[str] | None = None, **values: Any) -> int:
        given = {key: value for key, value in values.items() if value is not None and value != []}
        return run(prompts or [], given)

    parameters = [_prompts(), *map(_parameter, OPTIONS)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return command


def _prompts() -> inspect.Parameter:
    info = typer.Argument(
        help="The prompt; several are several texts. - and no prompt at all read a pipe.",
        show_default=False,
        metavar="[PROMPT]...",
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("prompts", kind, default=info, annotation=list[str] | None)


def _parameter(entry: Option) -> inspect.Parameter:
    # Every default is None, "not given": the settings' layers decide, and know who said what.
    info = typer.Option(
        None,
        *entry.names,
        help=_help(entry),
        metavar=entry.metavar,
        rich_help_panel=entry.section,
        show_default=False,
    )
    annotation = list[entry.type] | None if entry.many else entry.type | None  # type: ignore[name-defined]
    return inspect.Parameter(entry.key, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=annotation)


def _help(entry: Option) -> str:
    notes = [str(entry.bounds)] if str(entry.bounds) else []
    if entry.many:
        notes.append("repeatable")
    elif entry.default not in (None, False):
        notes.append(f"default: {entry.default}")
    return entry.help + (f" [{'; '.join(notes)}]" if notes else "")
