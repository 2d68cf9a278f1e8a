"""What distinguishes one command from another: usage, options, and what its arguments are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.cli.failures import unknown_word
from gencli.config.options.run import OPTIONS, Option
from gencli.errors import UsageError

__all__ = ["RUN", "Page", "values_of", "word_of"]


@dataclass(frozen=True, slots=True)
class Page:
    """`usage` heads the help; `argument` is the name of the arguments, empty if there are none.

    Completion offers `words` in the place of the first, and behind one of them what `after` has for it: a
    function from the beginning of a word to whole words.
    """

    usage: str
    options: tuple[Option, ...]
    argument: str = ""
    words: tuple[str, ...] = ()
    after: Mapping[str, Callable[[str], list[str]]] = field(default_factory=dict)


RUN = Page(
    """\
Usage: gencli run [OPTIONS] [PROMPT]...

Generate text from a prompt. Several prompts give several texts. What comes
through a pipe is the prompt, or stands behind the one that is given, or where
that says {stdin}; the prompt - is the pipe's text alone:
    cat notes.txt | gencli run "Summarise this:"
""",
    OPTIONS,
    "PROMPT",
)


def values_of(page: Page, given: Mapping[str, Any]) -> dict[str, Any]:
    """The checked value of each of the page's options."""
    return {
        entry.key: entry.value(given[entry.key], entry.flag) if entry.key in given else entry.default
        for entry in page.options
    }


def word_of(
    command: str, options: Mapping[str, Sequence[str]], arguments: Sequence[str], given: Iterable[str]
) -> tuple[str, list[str]]:
    """What the first argument says to do, and the arguments behind it.

    `options` has the keys of those that each word takes, beside --debug. UsageError for another word, or for
    an option that is given to the wrong one.
    """
    word, *rest = arguments or [""]
    if word not in options:
        raise unknown_word(command, word, [*options])
    for key in given:
        if key not in (*options[word], "debug"):
            raise UsageError(f"--{key.replace('_', '-')} is not for {command} {word}.", hint="Leave it out.")
    return word, rest
