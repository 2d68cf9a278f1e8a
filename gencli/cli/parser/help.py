"""The help of a command as plain text, generated from its options and wrapped to the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from gencli.cli.parser.page import RUN, Page
from gencli.config.options.flags import with_flags
from gencli.config.options.run import SECTIONS, Option

__all__ = ["command_help", "describe_option", "signature"]

_COLUMN = 34
_NO_BREAK = "\xa0"  # a space at which lines are not wrapped


def command_help(width: int | None = None, *, page: Page = RUN) -> str:
    """Return the help of a command, wrapped at `width` columns (by default the terminal's, at most 110)."""
    width = width or min(shutil.get_terminal_size((80, 24)).columns, 110)
    parts = [page.usage]
    for section in SECTIONS:
        if entries := [entry for entry in page.options if entry.section == section]:
            parts.append(f"{section}:\n" + _table(entries, width))
    parts.append("Help:\n" + _row("-h, --help", "Print this help and exit.", width))
    return "\n".join(parts)


def describe_option(entry: Option, *, space: str = " ") -> str:
    """Return the option's sentence with its bounds and default; `space` replaces the spaces in these."""
    notes = [str(entry.bounds)] if str(entry.bounds) and not entry.read else []
    if entry.many:
        notes.append("repeatable")
    elif entry.default not in (None, ()) and entry.type is not bool:
        notes.append(f"default: {entry.default:g}" if entry.type is float else f"default: {entry.default}")
    return with_flags(entry.help) + (
        f" ({'; '.join(note.replace(' ', space) for note in notes)})" if notes else ""
    )


def signature(entry: Option) -> str:
    """Return the option's names and metavar, the short name first: `-t, --temperature NUMBER`."""
    names = ", ".join(sorted(entry.names, key=len))
    return f"{names} {_metavar(entry)}".strip()


def _metavar(entry: Option) -> str:
    if entry.metavar:
        return entry.metavar
    if entry.choices:
        return "|".join(entry.choices)
    return {bool: "", int: "N", float: "NUMBER"}[entry.type]


def _table(entries: Iterable[Option], width: int) -> str:
    return "".join(
        _row(signature(entry), describe_option(entry, space=_NO_BREAK), width) for entry in entries
    )


def _row(names: str, text: str, width: int) -> str:
    lines = textwrap.wrap(text, max(20, width - _COLUMN), break_long_words=False, break_on_hyphens=False)
    head = f"  {names}"
    lines = [line.replace(_NO_BREAK, " ") for line in lines]
    if len(head) > _COLUMN - 2:
        lines.insert(0, "")
    return "".join(
        f"{head if not place else '':<{_COLUMN}}{line}".rstrip() + "\n" for place, line in enumerate(lines)
    )
