"""The help of a command as plain text, generated from its options and wrapped to the terminal's width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable

from gencli.cli.parser.page import RUN, Page
from gencli.config.options.flags import with_flags
from gencli.config.options.option import Option
from gencli.config.options.run import SECTIONS
from gencli.errors import UsageError

__all__ = ["command_help", "describe_option", "short_help", "signature"]

_COLUMN = 34
_NO_BREAK = "\xa0"  # a space at which lines are not wrapped


def command_help(width: int | None = None, *, page: Page = RUN, topic: str | None = None) -> str:
    """Return the help of a command, wrapped at `width` columns (by default the terminal's, at most 110).

    `topic`: only one group of the options. Raises UsageError for an unknown one.
    """
    width = width or min(shutil.get_terminal_size((80, 24)).columns, 110)
    groups = _groups(page)
    if topic is not None:
        names = {name.lower().split()[0]: name for name in groups}
        if topic.lower() not in names:
            raise UsageError(
                f"The help of {page.name} has no group {topic!r}.", hint=f"It has {', '.join(names)}."
            )
        groups = {names[topic.lower()]: groups[names[topic.lower()]]}
    parts = [page.usage] if topic is None else []
    parts += [f"{name}:\n" + _table(entries, page, width) for name, entries in groups.items()]
    if topic is None:
        parts.append("Help:\n" + _table_of_help(page, width))
    return "\n".join(parts)


def short_help(width: int | None = None, *, page: Page = RUN) -> str:
    """Return one screen: what the command is for, its everyday options, examples, how to see the rest."""
    width = width or min(shutil.get_terminal_size((80, 24)).columns, 110)
    by_key = {entry.key: entry for entry in page.options}
    everyday = [by_key[key] for key in page.everyday] or list(page.own or page.options)[:15]
    parts = [
        page.usage,
        "Options:\n" + "".join(_row(signature(entry), _first(entry, page), width) for entry in everyday),
    ]
    if page.examples:
        parts.append("Examples:\n" + "".join(f"  {line}\n" for line in page.examples))
    rest = len(page.options) - len(everyday)
    groups = ", ".join(name.lower().split()[0] for name in _groups(page))
    more = [("--help", f"All options; {rest} more." if rest > 0 else "The same with all sentences.")]
    if rest > 0:
        more.append(("--help TOPIC", f"One group: {groups}."))
    parts.append("More:\n" + "".join(_row(*row, width) for row in more))
    return "\n".join(parts)


def _groups(page: Page) -> dict[str, list[Option]]:
    """Return the options by heading: first those that only this command has."""
    own = {id(entry): entry for entry in page.own}
    groups = {f"{page.name.rpartition(' ')[2].capitalize()}": list(own.values())}
    others = [entry for entry in page.options if id(entry) not in own]
    groups |= {section: [entry for entry in others if entry.section == section] for section in SECTIONS}
    return {name: entries for name, entries in groups.items() if entries}


def _first(entry: Option, page: Page) -> str:
    """Return the beginning of the option's sentence, if it is one by itself."""
    text = with_flags(entry.help, page.options)
    end = re.search(r"(?<=[^.]\.) |(?<=.{24}); |(?<=.{24}): ", text)
    return text[: end.start()].rstrip(".") + "." if end else text


def _table_of_help(page: Page, width: int) -> str:
    groups = ", ".join(name.lower().split()[0] for name in _groups(page))
    rows = [("-h", "Print one screen of help and exit."), ("--help", "Print this help and exit.")]
    if len(_groups(page)) > 1:
        rows.append(("--help TOPIC", f"Print one group of the options: {groups}."))
    return "".join(_row(*row, width) for row in rows)


def describe_option(entry: Option, *, space: str = " ", beside: Iterable[Option] = ()) -> str:
    """Return the option's sentence with its bounds and default; `space` replaces the spaces in these.

    `beside`: the options of the command, whose keys in the sentence become flags.
    """
    notes = [str(entry.bounds)] if str(entry.bounds) and not entry.read else []
    if entry.many:
        notes.append("repeatable")
    elif entry.default not in (None, ()) and entry.type is not bool:
        notes.append(f"default: {entry.default:g}" if entry.type is float else f"default: {entry.default}")
    return with_flags(entry.help, beside) + (
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


def _table(entries: Iterable[Option], page: Page, width: int) -> str:
    return "".join(
        _row(signature(entry), describe_option(entry, space=_NO_BREAK, beside=page.options), width)
        for entry in entries
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
