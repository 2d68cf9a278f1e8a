"""The declaration of a command: usage, options, and the name of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.cli.failures import unknown_word
from gencli.config.options.run import OPTIONS, Option
from gencli.errors import UsageError

__all__ = ["RUN", "Page", "read_subcommand", "values_of"]


@dataclass(frozen=True, slots=True)
class Page:
    """A command's declaration. `usage` begins the help; `argument` is the arguments' metavar, "" for none.

    Completion offers `words` for the first argument. For the second it calls the function in `after` for that
    word, which returns whole words for the beginning of a word.
    """

    usage: str
    options: tuple[Option, ...]
    argument: str = ""
    words: tuple[str, ...] = ()
    after: Mapping[str, Callable[[str], list[str]]] = field(default_factory=dict)


RUN = Page(
    """\
Usage: gencli run [OPTIONS] [PROMPT]...

Generate text from a prompt. Several prompts give several texts. Piped text is
the prompt if none is given; otherwise it is appended to the prompt, or replaces
{stdin} in it. The prompt - is the piped text alone:
    cat notes.txt | gencli run "Summarise this:"
""",
    OPTIONS,
    "PROMPT",
)


def values_of(page: Page, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each option of the page by key. Raises UsageError for a bad value."""
    return {
        entry.key: entry.value(given[entry.key], entry.flag) if entry.key in given else entry.default
        for entry in page.options
    }


def read_subcommand(
    command: str, options: Mapping[str, Sequence[str]], arguments: Sequence[str], given: Iterable[str]
) -> tuple[str, list[str]]:
    """Return the subcommand, which is the first argument, and the arguments after it.

    `options`: option keys of each subcommand, besides --debug. Raises UsageError for an unknown subcommand,
    and for a given option that it does not accept.
    """
    word, *rest = arguments or [""]
    if word not in options:
        raise unknown_word(command, word, [*options])
    for key in given:
        if key not in (*options[word], "debug"):
            raise UsageError(f"--{key.replace('_', '-')} is not for {command} {word}.", hint="Leave it out.")
    return word, rest
