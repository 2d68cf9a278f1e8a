"""What distinguishes one command from another: usage, options, and what its arguments are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gencli.options import OPTIONS, Option

__all__ = ["RUN", "Page", "values_of"]


@dataclass(frozen=True, slots=True)
class Page:
    """`usage` heads the help; `argument` is the name of the arguments, empty if there are none.

    `words` are what completion offers in their place.
    """

    usage: str
    options: tuple[Option, ...]
    argument: str = ""
    words: tuple[str, ...] = ()


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
        entry.key: entry.value(given[entry.key]) if entry.key in given else entry.default
        for entry in page.options
    }
