"""What acts in a chat's next answer, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gencli.chat.conversation import Conversation
from gencli.chat.state import Chat, changeable
from gencli.config.options.run import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES, Option, option
from gencli.config.options.structure import KINDS
from gencli.config.peers import meant_option
from gencli.config.settings import Assigned
from gencli.errors import UsageError

__all__ = ["Acting", "about", "acting", "everything", "find_option", "history", "listed", "shown"]

Acting = tuple[str, str, str]  # name, value, origin
_NAMES = {(entry.stage, entry.field): entry.flag.lstrip("-") for entry in OPTIONS if entry.stage}
_OWN = {"seed": "/seed", "system": "/system", "preset": "/preset", **dict.fromkeys(KINDS, "/schema")}


def find_option(key: str) -> Option:
    """The option that a chat can set, by key, flag or short flag. Raises UsageError with the nearest name."""
    wanted = key.lstrip("-").replace("-", "_")
    known = {entry.key: entry for entry in changeable()}
    by_short = {name.lstrip("-"): entry for entry in known.values() for name in entry.names}
    if found := known.get(wanted) or by_short.get(wanted):
        return found
    if wanted in _OWN:
        raise UsageError(f"{key} has its own command.", hint=f"See {_OWN[wanted]}.")
    spelled = {name: entry.flag.lstrip("-") for name, entry in known.items()}
    raise UsageError(f"A chat cannot set {key!r}.", hint=meant_option(key, spelled) or "See /show.")


def acting(chat: Chat, entry: Option) -> list[Acting]:
    """The value of an option that acts, whether the option gave it or a stage's own entry.

    An option for all penalties has a row for each of them that has the field.
    """
    stages = PENALTY_STAGES if entry in PENALTY_OPTIONS else (entry.stage,)
    found = [
        said for said in chat.job.assembly.values if (said.field, said.stage in stages) == (entry.field, True)
    ]
    if entry.field and found:
        return [_row(said) for said in found]
    settings = chat.settings
    return [(entry.flag.lstrip("-"), shown(settings[entry.key]), _origin(chat, entry.key))]


def about(chat: Chat, key: str) -> list[Acting]:
    """All that is said of an option, with the other fields of its stage, or of a stage by its name."""
    name = key.replace("-", "_")
    for row in _head(chat):
        if row[0] == key:
            return [row]
    of_stage = [_row(said) for said in chat.job.assembly.of_stage(name)]
    if of_stage and name not in (entry.key for entry in changeable()):
        return of_stage
    entry = find_option(key)
    others = map(_row, chat.job.assembly.of_stage(entry.stage))
    return list(dict.fromkeys([*acting(chat, entry), *others]))


def everything(chat: Chat) -> list[Acting]:
    """Model, seed, presets and system message, then every value that anything but a default gave."""
    assembly, settings = chat.job.assembly, chat.settings
    rows = [*_head(chat)]
    rows += [_row(said) for name, _ in assembly.chain for said in assembly.of_stage(name)]
    for entry in changeable():
        is_given = settings.is_given(entry.key) or entry.key == "max_tokens"
        if is_given and not entry.field and entry.key != "stage":
            rows += acting(chat, entry)
    return rows


def listed(rows: list[Acting]) -> str:
    """The rows as lines of three columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(2)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[2]]).rstrip() for row in rows)


def shown(value: Any) -> str:
    """A value as /set would take it."""
    if isinstance(value, bool) or value is None:
        return "on" if value else "off"
    return ", ".join(map(shown, value)) if isinstance(value, tuple) else str(value)


def history(conversation: Conversation, *, last: int | None = None) -> Iterator[str]:
    """Lines of what was said and answered, the last turns or all; where an answer was cut, its end."""
    turns = conversation.turns
    first = 0 if last is None else max(0, len(turns) - last)
    if first:
        yield f"({first} earlier turn{'' if first == 1 else 's'}; /history shows all.)"
    elif conversation.system is not None and turns:
        yield f"[system] {conversation.system}"
    for number, turn in enumerate(turns[first:], start=first + 1):
        yield f"[{number}] {turn.said}"
        end = f" [{turn.reason}]" if turn.reason in ("length", "interrupted") else ""
        yield f"{turn.answer.strip()}{end}"


def _head(chat: Chat) -> Iterator[Acting]:
    conversation, presets = chat.conversation, chat.settings["preset"]
    yield "model", chat.settings["model"], _origin(chat, "model")
    yield "seed", str(conversation.seed), f"turn {len(conversation.turns) + 1} is next"
    yield "system", "none" if conversation.system is None else conversation.system, ""
    if presets:
        yield "preset", shown(presets), ""
    if structure := chat.job.structure:
        yield structure.kind.replace("_", "-"), structure.source, structure.origin


def _row(said: Assigned) -> Acting:
    name = _NAMES.get((said.stage, said.field), f"{said.stage}.{said.field}")
    return name, shown(said.value), _from(said.origin, said.said, f"--{name}")


def _origin(chat: Chat, key: str) -> str:
    return _from(chat.settings.origin(key), chat.settings.said(key), option(key).flag)


def _from(origin: str, words: str, flag: str) -> str:
    """The layer, and its words where they say more than the option's name."""
    return origin if words == flag else f"{origin} {words}".strip()
