"""`gencli stages`: list all stages, show one, check a stage of your own."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gencli.cli.commands.stage_views import page, stage_table
from gencli.cli.parser.command import Plugins
from gencli.cli.terminal.render import Sink
from gencli.config.layers import plugin_texts
from gencli.config.tab_words import stage_names, stages_and_files
from gencli.plugins.plugin_registry import PluginRegistry, list_stages, make_registry
from gencli.runtime.machine import quiet_libraries

__all__ = ["command"]

_Values = Annotated[
    list[str] | None,
    typer.Option("--stage", metavar="STAGE", help="Values to try, as in name:key=value. (repeatable)"),
]
_Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The stage's name.", autocompletion=stage_names)]
_Target = Annotated[
    str,
    typer.Argument(
        metavar="PLUGIN",
        help="path.py, path.py:Class, module:Class or the name of a stage.",
        autocompletion=stages_and_files,
    ),
]


def command() -> typer.Typer:
    """Return the typer group of the commands."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.command("list", help="All stages in default order; broken plugins with their errors.")(_list)
    app.command("show", help="Fields, formula, reference and example of a stage.")(_show)
    app.command("check", help="Run the contract checks on a stage of your own, without a model.")(_check)
    return app


def _list(plugins: Plugins = None) -> int:
    with quiet_libraries():
        stages = list_stages(plugin_texts(plugins, os.environ))
    Sink().write(stage_table(stages))
    return 0


def _show(name: _Name, plugins: Plugins = None) -> int:
    with quiet_libraries():
        registry = make_registry(plugin_texts(plugins, os.environ))
        text = page(registry, name)
    Sink().write(text)
    return 0


def _check(target: _Target, values: _Values = None, *, debug: _Debug = False) -> int:
    from gencli.cli.commands.check_view import check_report

    with quiet_libraries():
        text, is_sound = check_report(PluginRegistry(), target, values or (), is_debugged=debug)
    Sink().write(text)
    return 0 if is_sound else 4
