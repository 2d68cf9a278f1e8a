"""`gencli completion`: the script that makes a shell complete gencli's commands, flags and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gencli.cli.command import make_command
from gencli.cli.failures import unknown_word
from gencli.cli.page import Page
from gencli.cli.render import Sink

__all__ = ["PAGE", "command", "run"]

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
    Sink().write(script.strip() + "\n")
    return 0
