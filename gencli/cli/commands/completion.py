"""Completion in shells: the script (`gencli completion`), and the answers that it asks for."""

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
    """The function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the script; the exit code."""
    shell = " ".join(arguments)
    if shell not in _SHELLS:
        raise unknown_word("gencli completion", shell, _SHELLS)
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="gencli", complete_var="_GENCLI_COMPLETE", shell=shell)
    if shell == "bash":  # what goes on behind such a sign gets no space
        end = "    return 0\n"
        script = script.replace(end, f"    [[ ${{COMPREPLY[0]}} == *[=:/] ]] && compopt -o nospace\n{end}")
    Sink().write(script.strip() + "\n")
    return 0


def complete(asked: str, make: Callable[..., Any], commands: Mapping[str, str]) -> int:
    """Answer a shell's script; the exit code. `make` gives the command line with the commands it is told.

    Only the command in question is imported, none while its name is typed.
    """
    from typer._completion_classes import BashComplete, FishComplete, PowerShellComplete, ZshComplete

    classes = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    shell = asked.removeprefix("complete_")
    found = _made(classes.get(shell, PowerShellComplete), commands, strips=shell == "bash")
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    word = [*words.split(), "", ""][1]
    group = make(word if word in commands else "completion")
    text = found(group, {}, "gencli", "_GENCLI_COMPLETE").complete()
    if text:
        Sink().write(text + "\n")
    return 0


def _made(base: Any, commands: Mapping[str, str], *, strips: bool) -> Any:
    """A shell's class, with whole words, the names of all commands, and what bash wants of a word."""
    from typer._click.shell_completion import CompletionItem

    class Complete(base):  # type: ignore[misc]
        _start = 0  # of what bash puts in the place of the part of a word behind = and :

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
            found = super().get_completions(args, incomplete)
            flag, equals, _ = incomplete.partition("=")
            head = flag + equals if equals and flag.startswith("--") else ""
            return [CompletionItem(head + item.value, help=item.help) for item in found]

        def format_completion(self, item: Any) -> str:
            text = str(super().format_completion(item))
            return text[self._start :] if strips else text

    return Complete


def _joined(words: Sequence[str]) -> list[str]:
    """Words that bash took apart at = and :, whole again."""
    found: list[str] = []
    for word in words:
        is_sign = word != "" and not word.strip("=:")
        if found and (is_sign or (found[-1][-1:] in ("=", ":") and word)):
            found[-1] += word
        else:
            found.append(word)
    return found
