"""Shell completion: the script (`gencli completion`), and the completions requested by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gencli.cli.failures import unknown_word
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page
from gencli.cli.terminal.render import Sink

__all__ = ["PAGE", "command", "complete", "run"]

_SHELLS = ("bash", "zsh", "fish")
PAGE = Page(
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


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
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
                items = commands.items()
                return [
                    CompletionItem(name, help=text) for name, text in items if name.startswith(incomplete)
                ]
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
