"""Tab completion on a chat's input line: commands and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gencli.chat.commands import COMMANDS
from gencli.chat.state import Chat, changeable
from gencli.config.options.run import option
from gencli.config.tab_words import paths, presets, stage_values

__all__ = ["complete"]


def complete(line: str, chat: Chat) -> tuple[str, list[str]]:
    """Return the last word of a line up to the cursor, and its possible completions."""
    if not line.startswith("/") or line.startswith("//"):
        return "", []
    name, space, rest = line[1:].partition(" ")
    if not space:
        return line, [f"/{command}" for command in COMMANDS if command.startswith(name)]
    completer = _COMPLETERS.get(name)
    if completer is None:
        return "", []
    word = rest.rpartition(" ")[2] if name == "set" else rest
    return word, completer(rest, chat)


def _set(rest: str, chat: Chat) -> list[str]:
    key, space, value = rest.partition(" ")
    options = {entry.flag.lstrip("-"): entry for entry in changeable()}
    if not space:
        return _with_prefix(key, options)
    entry = options.get(key)
    if entry is None:
        return []
    if key == "stage":
        return stage_values(value)
    choices = ("on", "off") if entry.type is bool else entry.choices
    return _with_prefix(value, [*choices, "default"])


def _show(rest: str, chat: Chat) -> list[str]:
    names = [entry.flag.lstrip("-") for entry in changeable()]
    stages = list(dict.fromkeys(name for name, _ in chat.job.assembly.chain))
    return _with_prefix(rest, dict.fromkeys(["model", "seed", "system", *names, *stages]))


def _schema(rest: str, chat: Chat) -> list[str]:
    return [*_with_prefix(rest, ["off"]), *paths(rest, suffixes=(".json", ".yaml", ".yml"))]


def _transcripts(rest: str, chat: Chat) -> list[str]:
    return paths(rest, suffixes=(".json",))


def _with_prefix(prefix: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(prefix)]


_COMPLETERS: dict[str, Callable[[str, Chat], list[str]]] = {
    "set": _set,
    "show": _show,
    "preset": lambda rest, chat: presets(rest),
    "color": lambda rest, chat: _with_prefix(rest, option("color").choices),
    "schema": _schema,
    "system": lambda rest, chat: _with_prefix(rest, ["default"]),
    "save": _transcripts,
    "load": _transcripts,
}
