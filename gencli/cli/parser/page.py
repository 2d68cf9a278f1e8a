"""The declaration of a command: usage, options, and the name of its arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from gencli.cli.failures import unknown_word
from gencli.config.options.option import Option
from gencli.config.options.run import OPTIONS
from gencli.errors import UsageError

__all__ = ["RUN", "Page", "read_subcommand", "values_of", "with_format"]


@dataclass(frozen=True, slots=True)
class Page:
    """A command's declaration. `usage` begins the help; `argument` is the arguments' metavar, "" for none.

    Completion offers `words` for the first argument. For the second it calls the function in `after` for that
    word, which returns whole words for the beginning of a word. The short help shows the options with the
    keys `everyday`, by default the command's own ones, and the command lines `examples`.
    """

    usage: str
    options: tuple[Option, ...]
    argument: str = ""
    words: tuple[str, ...] = ()
    after: Mapping[str, Callable[[str], list[str]]] = field(default_factory=dict)
    everyday: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The words that call the command, as in `gencli config show`."""
        words = self.usage.partition("\n")[0].split()[1:]
        return " ".join(itertools.takewhile(lambda word: word.isalpha(), words))

    @property
    def own(self) -> tuple[Option, ...]:
        """The options that a run does not have, if there are others too."""
        of_run = {id(entry) for entry in OPTIONS}  # to compare their fields takes seconds
        own = tuple(entry for entry in self.options if id(entry) not in of_run)
        return own if len(own) < len(self.options) else ()


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
    everyday=tuple(
        "model chat raw system preset temperature top_p top_k min_p repetition_penalty seed max_tokens stop "
        "json_schema output".split()
    ),
    examples=(
        'gencli run "Once upon a time" --top-p 0.9 --seed 7',
        'gencli run -m model.gguf --chat "What is the capital of France?"',
        'gencli run --json-schema "name, age int" "Nora is a 41 year old pilot."',
    ),
)


def values_of(page: Page, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each option of the page by key. Raises UsageError for a bad value."""
    return {
        entry.key: entry.value(given[entry.key], entry.flag) if entry.key in given else entry.default
        for entry in page.options
    }


def with_format(given: Mapping[str, Any], formats: Sequence[str]) -> Mapping[str, Any]:
    """Return the given options with the format of the suffix of the output file, if none is given."""
    suffix = PurePath(given.get("output") or "").suffix.lower().removeprefix(".")
    form = {"yml": "yaml"}.get(suffix, suffix)
    return {**given, "format": form} if form in formats and "format" not in given else given


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
