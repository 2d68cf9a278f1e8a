"""A typer command whose parameters are made from the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from gencli.cli.help import command_help, describe_option
from gencli.cli.page import RUN, Page
from gencli.cli.render import Sink
from gencli.models.places import local_names
from gencli.options import Option
from gencli.plugins.discovery import installed_plugins
from processors.registry import builtin_registry

__all__ = ["Plugins", "make_command"]

_KIND = inspect.Parameter.KEYWORD_ONLY
_Run = Callable[[list[str], Mapping[str, Any]], int]
# --plugin in commands that are no run.
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="PLUGIN", help="A stage from path.py[:Class] or module:Class."),
]


def make_command(run: _Run, page: Page = RUN) -> Callable[..., int]:
    """A function that typer can read; it hands on the arguments and the options that were given."""

    def command(*, arguments: list[str] | None = None, show_help: bool, **values: Any) -> int:
        given = {key: value for key, value in values.items() if value is not None and value != []}
        return run(arguments or [], given)

    parameters = [_arguments(page)] if page.argument else []
    parameters += [*map(_parameter, page.options), _help(page)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return command


def _arguments(page: Page) -> inspect.Parameter:
    info = typer.Argument(
        None, metavar=page.argument, autocompletion=(lambda: list(page.words)) if page.words else None
    )
    return inspect.Parameter("arguments", _KIND, default=info, annotation=list[str] | None)


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
    if entry.key == "stage":
        return _stage_names
    if entry.key == "model":
        return local_names
    if entry.key == "preset":
        return _preset_names
    return (lambda: list(entry.choices)) if entry.choices else None


def _stage_names() -> list[str]:
    """Of plugins the names alone, which the packages' metadata have: no plugin is imported."""
    return [*builtin_registry().names(), *(plugin.name for plugin in installed_plugins())]


def _preset_names() -> list[str]:
    from gencli.presets.find import list_presets

    return [name for name, _, _ in list_presets()]


def _help(page: Page) -> inspect.Parameter:
    def show(value: bool) -> None:
        if value:
            Sink().write(command_help(page=page))
            raise typer.Exit

    info = typer.Option(False, "--help", "-h", is_eager=True, callback=show)
    return inspect.Parameter("show_help", _KIND, default=info, annotation=bool)
