"""Builds typer commands whose parameters come from the option tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from gencli.cli.parser.help import command_help, describe_option, short_help
from gencli.cli.parser.page import RUN, Page
from gencli.cli.terminal.render import Sink
from gencli.config.options.option import Option
from gencli.config.tab_words import drafters, models, presets, sides, stage_order, stage_values

__all__ = ["HELP_TOPIC", "Plugins", "make_command"]

_OFFERS: dict[str, Callable[[str], list[str]]] = {
    "preset": presets,
    "model": models,
    "contrast": models,
    "draft": drafters,
    "stage": stage_values,
    "chain": stage_order,
    "a": sides,
    "b": sides,
    "model_b": models,
}
HELP_TOPIC = "--help-topic"
_HELP_KEYS = ("show_short", "show_help", "show_topic")
_KIND = inspect.Parameter.KEYWORD_ONLY
_Run = Callable[[list[str], Mapping[str, Any]], int]
# --plugin of commands that do not take the options of a run.
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="PLUGIN", help="A stage from path.py[:Class] or module:Class."),
]


def make_command(run: _Run, page: Page = RUN) -> Callable[..., int]:
    """Return a function for typer that calls `run` with the arguments and the given options.

    Its attribute `page` is `page`.
    """

    def command(*, arguments: list[str] | None = None, **values: Any) -> int:
        given = {
            key: value
            for key, value in values.items()
            if value is not None and value != [] and key not in _HELP_KEYS
        }
        return run(arguments or [], given)

    parameters = [_arguments(page)] if page.argument else []
    parameters += [*map(_parameter, page.options), *_help(page)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.page = page  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return command


def _arguments(page: Page) -> inspect.Parameter:
    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        first, *others = ctx.params.get("arguments") or [None]
        if first is None:
            return [word for word in page.words if word.startswith(incomplete)]
        return page.after[first](incomplete) if first in page.after and not others else []

    info = typer.Argument(None, metavar=page.argument, autocompletion=offer if page.words else None)
    return inspect.Parameter("arguments", _KIND, default=info, annotation=list[str] | None)


def _parameter(entry: Option) -> inspect.Parameter:
    # Every default is None, "not given", because the layers of settings determine values and origins. Values
    # stay text, because Option.value converts and checks them.
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


def _completion(entry: Option) -> Callable[[str], list[str]] | None:
    def choices(incomplete: str) -> list[str]:
        return [choice for choice in entry.choices if choice.startswith(incomplete)]

    return _OFFERS.get(entry.key) or (choices if entry.choices else None)


def _help(page: Page) -> list[inspect.Parameter]:
    """Return the eager options `-h`, `--help`, and the hidden one that `--help TOPIC` becomes."""

    def show(text: Callable[[Any], str]) -> Callable[[Any], None]:
        def callback(value: Any) -> None:
            if value:
                Sink().page(text(value))
                raise typer.Exit

        return callback

    def whole(value: Any) -> str:
        return command_help(page=page, topic=None if value is True else value)

    short = typer.Option(False, "-h", is_eager=True, callback=show(lambda _: short_help(page=page)))
    long = typer.Option(False, "--help", is_eager=True, callback=show(whole))
    topic = typer.Option(None, HELP_TOPIC, is_eager=True, hidden=True, callback=show(whole))
    return [
        inspect.Parameter("show_short", _KIND, default=short, annotation=bool),
        inspect.Parameter("show_help", _KIND, default=long, annotation=bool),
        inspect.Parameter("show_topic", _KIND, default=topic, annotation=str | None),
    ]
