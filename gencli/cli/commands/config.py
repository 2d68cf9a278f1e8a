"""`gencli config`: show settings and their origins; list, check, compare, export and edit presets."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from gencli.cli.commands.config_view import config_json, config_table, differences, lint_report, preset_table
from gencli.cli.parser.command import Plugins, make_command
from gencli.cli.parser.page import Page
from gencli.cli.terminal.render import Sink, say, say_notice
from gencli.config.job import make_job
from gencli.config.layers import gather, gather_presets, plugin_texts
from gencli.config.options.flags import with_flags
from gencli.config.options.run import OPTIONS
from gencli.config.presets.find import defaults_file, folders
from gencli.config.presets.preset_schema import json_schema
from gencli.config.presets.write import needs, preset_text
from gencli.config.settings import Settings
from gencli.config.tab_words import presets, presets_and_files
from gencli.errors import UsageError
from gencli.json_text import to_json
from gencli.plugins.plugin_registry import PluginRegistry, list_stages, make_registry
from gencli.runtime.machine import quiet_libraries
from gencli.templates.prompt_templates import template_folders

__all__ = ["command"]

_CONTEXT = {"help_option_names": ["-h", "--help"]}
_SHOW = """\
Usage: gencli config show [OPTIONS]

Print every value of the run that these options would make, and where it comes
from. --format yaml is a preset with the origins as comments.
"""
_EXPORT = """\
Usage: gencli config export [OPTIONS]

Write the run that these options would make as a preset, to stdout or to the
file that --output names. A preset in it keeps its description and what it
extends; a seed is written if one was given.
"""
_NEW_DEFAULTS = """\
# Your defaults, a preset that every run begins with. Presets, variables and flags take precedence over it.
# model: Qwen/Qwen3-0.6B
# temperature: 0.8
# extends: creative
"""
_FROM = (
    "Whose settings they are: llama-cpp, tgw, sillytavern, koboldcpp, openai, vllm, sglang, hf, mlx, "
    "exl2, exl3 or aphrodite; by default the fields tell it."
)
_SHOW_OPTIONS = tuple(
    dataclasses.replace(
        entry, type=Literal["text", "yaml", "json"], help="Form in which the settings are shown."
    )
    if entry.key == "format"
    else entry
    for entry in OPTIONS
    if entry.key not in ("show_chain", "show_prompt")
)


def command() -> typer.Typer:
    """Return the typer group of the commands."""
    app = typer.Typer(context_settings=_CONTEXT, rich_markup_mode=None, add_completion=False)
    app.command("list", help="List the presets there are, and where.")(_list)
    show = make_command(_show, Page(_SHOW, _SHOW_OPTIONS, "PROMPT"))
    app.command("show", help="Print every value and its origin.", add_help_option=False)(show)
    app.command("lint", help="Check preset files; all faults at once.")(_lint)
    app.command("diff", help="Print what differs between two presets.")(_diff)
    app.command("schema", help="Print the JSON Schema of a preset, with the stages of plugins.")(_schema)
    export = make_command(_export, Page(_EXPORT, OPTIONS, "PROMPT"))
    app.command("export", help="Write a command line as a preset.", add_help_option=False)(export)
    app.command(
        "import",
        help="Write settings of another system as a preset: a file, - for stdin, or its command line.",
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(_import)
    app.command("edit", help="Edit your own defaults, which every run begins with.")(_edit)
    app.command("path", help="Print the folders in which presets and templates are looked for.")(_path)
    return app


def _list() -> int:
    Sink().write(preset_table())
    return 0


def _show(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    _refuse_prompts(arguments)
    flags = dict(given)
    entry = next(entry for entry in _SHOW_OPTIONS if entry.key == "format")
    form = entry.value(flags.pop("format", "text"), entry.flag)
    settings = gather(flags, os.environ)
    job = make_job(settings)
    with Sink(settings["output"]) as sink:
        if form == "yaml":
            sink.write(preset_text(settings, job, is_complete=True))
        else:
            sink.write((config_json if form == "json" else config_table)(settings, job))
    return _say_notices(settings)


_Preset = Annotated[str, typer.Argument(autocompletion=presets)]
_Files = Annotated[list[str], typer.Argument(autocompletion=presets_and_files)]


def _lint(files: _Files, plugins: Plugins = None) -> int:
    faults = lint_report(files, _registry(plugins))
    for line in faults:
        say(with_flags(line))
    if not faults:
        Sink().write(f"{len(files)} {'preset is' if len(files) == 1 else 'presets are'} right.\n")
    return 3 if faults else 0


def _diff(a: _Preset, b: _Preset, plugins: Plugins = None) -> int:
    registry = _registry(plugins)
    one, other = (gather_presets(name, registry=registry) for name in (a, b))
    Sink().write(differences(one, other, names=(a, b)))
    return 0


def _schema(plugins: Plugins = None) -> int:
    with quiet_libraries():
        registry = _registry(plugins)
        broken = [stage for stage in list_stages(registry=registry) if stage.error]
    Sink().write(to_json(json_schema(registry), indent=2) + "\n")
    for stage in broken:
        say_notice(stage.error)
    return 0


def _registry(plugins: Sequence[str] | None) -> PluginRegistry:
    return make_registry(plugin_texts(plugins, os.environ))


def _export(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    _refuse_prompts(arguments)
    settings = gather(given, os.environ)
    job = make_job(settings)
    with Sink(settings["output"]) as sink:
        sink.write(preset_text(settings, job))
    for text in needs(settings, job):
        say_notice(text)
    return _say_notices(settings)


def _import(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="FILE|-|COMMAND...", help="A file, - for stdin, or a command line as it is."),
    ],
    peer: Annotated[str | None, typer.Option("--from", metavar="NAME", help=_FROM)] = None,
) -> int:
    from gencli.imports.imported_preset import import_from

    found = import_from(arguments, peer or "", sys.stdin.buffer)
    Sink().write(found.text)
    for text in found.notes:
        say_notice(text)
    return 0


def _edit() -> int:
    path = defaults_file()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_NEW_DEFAULTS, encoding="utf-8")
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    hint = f"Set EDITOR to an editor, or edit {path} yourself."
    try:
        code = subprocess.call([*command, str(path)])
    except OSError as error:
        raise UsageError(f"The editor {command[0]} cannot be started: {error.strerror}.", hint=hint) from None
    if code:
        raise UsageError(f"The editor {command[0]} ended with code {code}.", hint=hint)
    return _lint([str(path)])


def _path() -> int:
    lines = (
        f"{label:<12}{folder}{'' if folder.is_dir() else '  (is not there)'}"
        for label, folder in (*folders(), *template_folders())
    )
    defaults = defaults_file()
    state = "" if os.path.lexists(defaults) else "  (is not there)"
    Sink().write("\n".join([*lines, f"{'defaults':<12}{defaults}{state}"]) + "\n")
    return 0


def _say_notices(settings: Settings) -> int:
    for text in settings.notices():
        say_notice(text)
    return 0


def _refuse_prompts(arguments: Sequence[str]) -> None:
    if arguments:
        raise UsageError(f"{arguments[0]!r} is a prompt, and a prompt is no setting.", hint="Leave it out.")
