"""Commands that show what a run would use, without weights: `gencli config` (settings and presets),
`gencli stages` and `gencli tokenize`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gencli.cli.commands import setting_views as views
from gencli.cli.inputs import read_prompts
from gencli.cli.option_parser import Plugins, make_command
from gencli.cli.render import Sink, say, say_notice, table
from gencli.cli.usage import FORMAT_AND_DEBUG, Page, in_format, values_of
from gencli.config import preset_files
from gencli.config.job import chat_ids, make_job
from gencli.config.layers import gather, gather_presets, needs, plugin_texts, preset_text
from gencli.config.option import Option
from gencli.config.option_names import with_flags
from gencli.config.preset_files import (
    defaults_file,
    presets,
    presets_and_files,
    stage_names,
    stages_and_files,
)
from gencli.config.presets import json_schema
from gencli.config.result_formats import format_of
from gencli.config.run_options import OPTIONS, option, read_ids
from gencli.errors import UsageError
from gencli.files import open_regular
from gencli.helpers import counted
from gencli.json_text import to_json
from gencli.plugins.plugin_registry import PluginRegistry, list_stages, make_registry
from gencli.runtime.machine import quiet_libraries
from gencli.templates.prompt_templates import template_folders

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer


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
    "The system that the settings are from: llama-cpp, tgw, sillytavern, koboldcpp, openai, vllm, sglang, "
    "hf, mlx, exl2, exl3 or aphrodite; by default it is recognised by the fields."
)
_SHOW_OPTIONS = tuple(
    replace(entry, type=Literal["text", "yaml", "json"], help="Form in which the settings are shown.")
    if entry.key == "format"
    else entry
    for entry in OPTIONS
    if entry.key not in ("show_chain", "show_prompt")
)


def command() -> typer.Typer:
    """Return the typer group of the commands."""
    app = typer.Typer(context_settings=_CONTEXT, rich_markup_mode=None, add_completion=False)
    app.command("list", help="List the presets and their folders.")(_list)
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
    rows = [("preset", "from", "what it is for")]
    for name, label, path in preset_files.list_presets():
        try:
            with open_regular(path) as file:
                rows.append((name, label, preset_files.description_of(file.readline(800))[:200]))
        except OSError as error:
            rows.append((name, label, f"({error.strerror})"))
    Sink().write(table(rows))
    return 0


def _show(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    _refuse_prompts(arguments)
    run_flags = dict(flags)
    entry = next(entry for entry in _SHOW_OPTIONS if entry.key == "format")
    form = entry.value(run_flags.pop("format", "text"), entry.flag)
    settings = gather(run_flags, os.environ)
    job = make_job(settings)
    with Sink(settings["output"]) as sink:
        if form == "yaml":
            sink.write(preset_text(settings, job, is_complete=True))
        else:
            sink.write(views.config_text(settings, job, form))
    say_notice(*settings.notices())
    return 0


_Preset = Annotated[str, typer.Argument(autocompletion=presets)]
_Files = Annotated[list[str], typer.Argument(autocompletion=presets_and_files)]


def _lint(files: _Files, plugins: Plugins = None) -> int:
    faults = views.lint_report(files, _registry(plugins))
    for line in faults:
        say(with_flags(line))
    if not faults:
        Sink().write(f"{counted(len(files), 'preset is', 'presets are')} valid.\n")
    return 3 if faults else 0


def _diff(a: _Preset, b: _Preset, plugins: Plugins = None) -> int:
    registry = _registry(plugins)
    first, second = (gather_presets(name, registry=registry) for name in (a, b))
    Sink().write(views.differences(first, second, names=(a, b)))
    return 0


def _schema(plugins: Plugins = None) -> int:
    with quiet_libraries():
        registry = _registry(plugins)
        errors = [stage.error for stage in list_stages(registry=registry) if stage.error]
    Sink().write(to_json(json_schema(registry), indent=2) + "\n")
    say_notice(*errors)
    return 0


def _registry(plugins: Sequence[str] | None) -> PluginRegistry:
    return make_registry(plugin_texts(plugins, os.environ))


def _export(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    _refuse_prompts(arguments)
    settings = gather(flags, os.environ)
    job = make_job(settings)
    with Sink(settings["output"]) as sink:
        sink.write(preset_text(settings, job))
    say_notice(*needs(settings, job), *settings.notices())
    return 0


def _import(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="FILE|-|COMMAND...", help="A file, - for stdin, or a command line as it is."),
    ],
    peer: Annotated[str | None, typer.Option("--from", metavar="NAME", help=_FROM)] = None,
) -> int:
    from gencli.imports.imported_preset import import_from

    imported = import_from(arguments, peer or "", sys.stdin.buffer)
    Sink().write(imported.text)
    say_notice(*imported.notes)
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
        f"{label:<12}{folder}{'' if folder.is_dir() else '  (does not exist)'}"
        for label, folder in (*preset_files.folders(), *template_folders())
    )
    defaults = defaults_file()
    state = "" if os.path.lexists(defaults) else "  (does not exist)"
    Sink().write("\n".join([*lines, f"{'defaults':<12}{defaults}{state}"]) + "\n")
    return 0


def _refuse_prompts(arguments: Sequence[str]) -> None:
    if arguments:
        message = f"{arguments[0]!r} is a prompt, but config takes only options."
        raise UsageError(message, hint="Leave it out.")


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


def stages_command() -> typer.Typer:
    """Return the typer group of the commands."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.command("list", help="All stages in default order; broken plugins with their errors.")(_list_stages)
    app.command("show", help="Fields, formula, reference and example of a stage.")(_show_stage)
    app.command("check", help="Run the contract checks on a stage of your own, without a model.")(
        _check_stage
    )
    return app


def _list_stages(plugins: Plugins = None) -> int:
    with quiet_libraries():
        stages = list_stages(plugin_texts(plugins, os.environ))
    rows = [("phase", "name", "what it does", "source")]
    for stage in stages:
        phase = "broken" if stage.phase is None else stage.phase.name.lower()
        rows.append((phase, stage.name, with_flags(stage.error) or stage.sentence, stage.source))
    Sink().write(table(rows))
    return 0


def _show_stage(name: _Name, plugins: Plugins = None) -> int:
    with quiet_libraries():
        text = views.page(_registry(plugins), name)
    Sink().write(text)
    return 0


def _check_stage(target: _Target, values: _Values = None, *, debug: _Debug = False) -> int:
    from gencli.cli.commands.check_view import check_report

    with quiet_libraries():
        text, is_sound = check_report(PluginRegistry(), target, values or (), is_debugged=debug)
    Sink().write(text)
    return 0 if is_sound else 4


TOKENIZE_PAGE = Page(
    """\
Usage: gencli tokenize [OPTIONS] [TEXT]

Show the tokens that a model's tokenizer makes of a text, which is the argument
or comes through a pipe; with --decode, the text of ids. With --chat the text is
a user's message in the model's chat template.
""",
    (
        option("model"),
        option("trust_remote_code"),
        replace(option("chat"), help="Put the text into the model's chat template."),
        option("system"),
        option("show_prompt"),
        Option(("--decode",), str, "Decode these ids, as in 12,7,300.", "Prompt", (), many=True,
               read=read_ids, metavar="IDS"),
        Option(("--special/--no-special",), bool, "Put the tokenizer's own tokens around the text, as a run "
               "does (the default), or not.", "Prompt", True),
        *FORMAT_AND_DEBUG,
    ),
    "TEXT",
)  # fmt: skip


def run_tokenize(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the tokens and return the exit code. Raises UsageError for options that exclude each other."""
    values = values_of(TOKENIZE_PAGE.options, flags, os.environ)
    beside = {"a text": arguments, "--chat": values["chat"], "--show-prompt": values["show_prompt"]}
    for name in (name for name, is_on in beside.items() if is_on and values["decode"]):
        raise UsageError(f"--decode and {name} are both given.", hint="Leave one of them out.")
    if values["chat"] and "special" in flags:
        raise UsageError(
            "The chat template has tokens of its own, so --special and --no-special do not go with --chat.",
            hint="Leave one of them out.",
        )
    if values["system"] is not None and not values["chat"]:
        raise UsageError("--system needs --chat: a raw text has no system message.", hint="Add --chat.")
    if len(arguments) > 1:
        raise UsageError("tokenize takes one text.", hint="Put it between quotes.")
    text = ""
    if not values["decode"]:  # the argument or stdin, joined as `gencli run` joins them
        prompts = read_prompts(arguments, None, command="tokenize")
        say_notice(*prompts.notices)
        text = prompts.texts[0]
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.runtime.model_loading import load_tokenizer

        tokenizer = load_tokenizer(values["model"], trust_remote_code=values["trust_remote_code"])
        ids = values["decode"]
        if not ids and values["chat"]:
            ids = chat_ids(text, tokenizer, values["system"])
        elif not ids:
            ids = tuple(tokenizer.encode(text, special=values["special"]))
        if values["show_prompt"]:
            from gencli.cli.result_writers import show_prompts

            show_prompts((text,), (ids,), tokenizer, format_of(values), Sink())
            return 0
        record = _record(ids, tokenizer, values["model"])
    Sink().write(in_format(record["text"] + "\n" if values["decode"] else _text(record), record, values))
    return 0


def _record(ids: Sequence[int], tokenizer: Tokenizer, model: str) -> dict[str, Any]:
    for token in ids:
        if not 0 <= token < tokenizer.vocab_size:
            raise UsageError(f"Token id {token} is not one of {model}'s: 0 to {tokenizer.vocab_size - 1}.")
    text, tokens = tokenizer.decode(ids), []
    for token in ids:
        is_special, data = token in tokenizer.special_ids, tokenizer.token_bytes[token]
        piece = tokenizer.decode([token], skip_special=False) if is_special else data.decode(errors="replace")
        tokens.append({"id": token, "piece": piece, "bytes": data.hex(" "), "special": is_special})
    counts = {"tokens": len(ids), "characters": len(text), "bytes": len(text.encode())}
    return {"model": model, "text": text, "counts": counts, "tokens": tokens}


def _text(record: Mapping[str, Any]) -> str:
    rows = [("place", "id", "piece", "bytes")]
    for position, token in enumerate(record["tokens"]):
        piece = token["piece"] if token["special"] else repr(token["piece"])
        rows.append((str(position), str(token["id"]), piece, token["bytes"] or "(special)"))
    counts = ", ".join(f"{count} {unit}" for unit, count in record["counts"].items())
    return f"{table(rows)}{counts}\n"
