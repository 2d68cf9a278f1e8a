"""Builds typer commands from the option tables; `gencli completion` and the completions that a shell
requests.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from gencli.cli.render import Sink
from gencli.cli.usage import Page, command_help, describe_option, short_help, unknown_word
from gencli.config.preset_files import drafters, models, presets, sides, stage_order, stage_values

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


def make_command(run: _Run, page: Page) -> Callable[..., int]:
    """Return a function for typer that calls `run` with the arguments and the given options.

    Its attribute `page` is `page`.
    """

    def command(*, arguments: list[str] | None = None, **values: Any) -> int:
        is_given = {key: value is not None and value != [] for key, value in values.items()}
        flags = {key: value for key, value in values.items() if is_given[key] and key not in _HELP_KEYS}
        return run(arguments or [], flags)

    parameters = [_arguments(page)] if page.argument else []
    for entry in page.options:
        # Every default is None, "not given", because the layers of settings determine values and origins.
        # Values stay text, because Option.value converts and checks them.
        metavar, offer = entry.metavar, _OFFERS.get(entry.key) or _offer_of(entry.choices)
        info = typer.Option(
            None, *entry.names, help=describe_option(entry), metavar=metavar, autocompletion=offer
        )
        kind: Any = list[str] if entry.many else bool if entry.type is bool else str
        parameters.append(inspect.Parameter(entry.key, _KIND, default=info, annotation=kind | None))
    parameters += _help(page)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.page = page  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _arguments(page: Page) -> inspect.Parameter:
    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        first, *others = ctx.params.get("arguments") or [None]
        if first is None:
            return [word for word in page.words if word.startswith(incomplete)]
        return page.after[first](incomplete) if first in page.after and not others else []

    info = typer.Argument(None, metavar=page.argument, autocompletion=offer if page.words else None)
    return inspect.Parameter("arguments", _KIND, default=info, annotation=list[str] | None)


def _offer_of(words: Sequence[str]) -> Callable[[str], list[str]] | None:
    def offer(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offer if words else None


def _help(page: Page) -> list[inspect.Parameter]:
    """Return the eager options `-h`, `--help`, and the hidden one that `--help TOPIC` becomes."""

    def show(value: Any, param: typer.CallbackParam) -> None:
        if value:
            is_short, topic = "-h" in param.opts, None if value is True else value
            Sink().page(short_help(page=page) if is_short else command_help(page=page, topic=topic))
            raise typer.Exit

    short = typer.Option(False, "-h", is_eager=True, callback=show)
    long = typer.Option(False, "--help", is_eager=True, callback=show)
    topic = typer.Option(None, HELP_TOPIC, is_eager=True, hidden=True, callback=show)
    return [
        inspect.Parameter("show_short", _KIND, default=short, annotation=bool),
        inspect.Parameter("show_help", _KIND, default=long, annotation=bool),
        inspect.Parameter("show_topic", _KIND, default=topic, annotation=str | None),
    ]


_SHELLS = ("bash", "zsh", "fish")
COMPLETION_PAGE = Page(
    """\
Usage: gencli completion bash|zsh|fish

Print the completion script of a shell. It completes commands, flags, their
values, stages and the models on this machine.
    bash:  gencli completion bash >> ~/.bashrc
    zsh:   gencli completion zsh > "${fpath[1]}/_gencli"
    fish:  gencli completion fish > ~/.config/fish/completions/gencli.fish
""",
    (),
    "bash|zsh|fish",
    _SHELLS,
)


def run_completion(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the script and return the exit code. Raises UsageError for an unknown shell."""
    shell = " ".join(arguments)
    if shell not in _SHELLS:
        raise unknown_word("gencli completion", shell, _SHELLS)
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="gencli", complete_var="_GENCLI_COMPLETE", shell=shell)
    if shell == "bash":  # no space after a completion that ends with =, : or /
        end = "    return 0\n"
        script = script.replace(end, f"    [[ ${{COMPREPLY[0]}} == *[=:/] ]] && compopt -o nospace\n{end}")
    Sink().write(script.strip() + "\n")
    return 0


def complete(instruction: str, make: Callable[..., Any], commands: Mapping[str, str]) -> int:
    """Print the completions for a shell's script and return the exit code.

    `instruction`: value of _GENCLI_COMPLETE, such as "complete_bash". `make` returns the click group of the
    given commands. Only the command being typed is imported, none while its name is typed.
    """
    from typer._completion_classes import BashComplete, FishComplete, PowerShellComplete, ZshComplete

    classes = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    shell = instruction.removeprefix("complete_")
    completer = _completer(classes.get(shell, PowerShellComplete), commands, strips=shell == "bash")
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    word = [*words.split(), "", ""][1]
    group = make(word if word in commands else "completion")
    text = completer(group, {}, "gencli", "_GENCLI_COMPLETE").complete()
    if text:
        Sink().write(text + "\n")
    return 0


def _completer(base: Any, commands: Mapping[str, str], *, strips: bool) -> Any:
    """Return a subclass of typer's class for a shell that completes command names, and values after `=`.

    `strips`: for bash, which splits words at = and : and replaces only the last part.
    """
    from typer._click.shell_completion import CompletionItem

    class Complete(base):  # type: ignore[misc]
        _start = 0  # beginning of the part of the last word that bash replaces

        def get_completion_args(self) -> tuple[list[str], str]:
            args, incomplete = super().get_completion_args()
            if not strips:
                return args, incomplete
            *args, incomplete = _joined([*args, incomplete])
            self._start = max(incomplete.rfind(sign) for sign in "=:") + 1
            return args, incomplete

        def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
            if not args and not incomplete.startswith("-"):
                items = (item for item in commands.items() if item[0].startswith(incomplete))
                return [CompletionItem(name, help=text) for name, text in items]
            completions = super().get_completions(args, incomplete)
            flag, equals, _ = incomplete.partition("=")
            head = flag + equals if equals and flag.startswith("--") else ""
            return [CompletionItem(head + item.value, help=item.help) for item in completions]

        def format_completion(self, item: Any) -> str:
            text = str(super().format_completion(item))
            return text[self._start :] if strips else text

    return Complete


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words, with parts joined again that bash split at = and :."""
    whole: list[str] = []
    for word in words:
        is_sign = word != "" and not word.strip("=:")
        if whole and (is_sign or (whole[-1][-1:] in ("=", ":") and word)):
            whole[-1] += word
        else:
            whole.append(word)
    return whole
