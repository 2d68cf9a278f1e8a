"""A typer command whose parameters are made from the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from gencli.cli.help import RUN_USAGE, command_help, describe_option
from gencli.cli.render import Sink
from gencli.options import OPTIONS, Option

__all__ = ["make_command"]

_KIND = inspect.Parameter.KEYWORD_ONLY
_Run = Callable[[list[str], Mapping[str, Any]], int]


def make_command(
    run: _Run, *, usage: str = RUN_USAGE, options: Sequence[Option] = OPTIONS
) -> Callable[..., int]:
    """A function that typer can read; it hands on the prompts and the options that were given."""

    def command(*, prompts: list[str] | None, show_help: bool, **values: Any) -> int:
        given = {key: value for key, value in values.items() if value is not None and value != []}
        return run(prompts or [], given)

    parameters = [_prompts(), *map(_parameter, options), _help(usage, options)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return command


def _prompts() -> inspect.Parameter:
    info = typer.Argument(None, metavar="PROMPT")
    return inspect.Parameter("prompts", _KIND, default=info, annotation=list[str] | None)


def _parameter(entry: Option) -> inspect.Parameter:
    # Every default is None, "not given": the settings' layers decide, and know who said what. Values
    # stay the text that was typed, so that one place says what is wrong with them.
    info = typer.Option(
        None,
        *entry.names,
        help=describe_option(entry),
        metavar=entry.metavar,
        autocompletion=_completion(entry),
    )
    kind = bool if entry.type is bool else str
    annotation: Any = list[str] if entry.many else kind
    return inspect.Parameter(entry.key, _KIND, default=info, annotation=annotation | None)


def _completion(entry: Option) -> Callable[[], list[str]] | None:
    if entry.key == "preset":
        return _preset_names
    return (lambda: list(entry.choices)) if entry.choices else None


def _preset_names() -> list[str]:
    from gencli.presets.find import list_presets

    return [name for name, _, _ in list_presets()]


def _help(usage: str, options: Sequence[Option]) -> inspect.Parameter:
    def show(value: bool) -> None:
        if value:
            Sink().write(command_help(usage=usage, options=options))
            raise typer.Exit

    info = typer.Option(False, "--help", "-h", is_eager=True, callback=show)
    return inspect.Parameter("show_help", _KIND, default=info, annotation=bool)
