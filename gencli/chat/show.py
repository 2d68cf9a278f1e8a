"""Tables for /show and /history: the settings of a chat's next answer with their origins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gencli.chat.conversation import Conversation
from gencli.chat.state import Chat, changeable
from gencli.config.options.run import OPTIONS, PENALTY_OPTIONS, Option
from gencli.config.options.stages import PENALTY_STAGES
from gencli.config.peers import meant_option
from gencli.config.settings import Assigned
from gencli.errors import UsageError
from gencli.json_text import to_json
from gencli.structured.output_spec import KINDS

__all__ = ["Row", "about", "everything", "find_option", "history", "option_rows", "shown"]

Row = tuple[str, str, str]  # name, value, origin
_NAMES = {
    (entry.stage, entry.field): entry.flag.lstrip("-") for entry in OPTIONS if entry.stage and not entry.when
}
_OWN = {"seed": "/seed", "system": "/system", "preset": "/preset", **dict.fromkeys(KINDS, "/schema")}


def find_option(key: str) -> Option:
    """Return an option that /set takes, by key, flag or short flag.

    Raises UsageError with the nearest name.
    """
    name = key.lstrip("-").replace("-", "_")
    known = {entry.key: entry for entry in changeable()}
    by_flag = {flag.lstrip("-"): entry for entry in known.values() for flag in entry.names}
    if entry := known.get(name) or by_flag.get(name):
        return entry
    if name in _OWN:
        raise UsageError(f"{key} has its own command.", hint=f"See {_OWN[name]}.")
    spelled = {key: entry.flag.lstrip("-") for key, entry in known.items()}
    raise UsageError(f"A chat cannot set {key!r}.", hint=meant_option(key, spelled) or "See /show.")


def option_rows(chat: Chat, entry: Option) -> list[Row]:
    """Return a row for an option's effective value, given by the option or by an entry of its stage.

    An option for all penalties has a row for each penalty with the field.
    """
    stages = PENALTY_STAGES if entry in PENALTY_OPTIONS else (entry.stage,)
    values = [v for v in chat.job.assembly.values if v.field == entry.field and v.stage in stages]
    if entry.when is not None:
        values = [value for value in values if value.when is not None]
    if entry.field and values:
        return [_row(value) for value in values]
    settings = chat.settings
    return [(entry.flag.lstrip("-"), shown(settings[entry.key]), _origin(chat, entry.key))]


def about(chat: Chat, key: str) -> list[Row]:
    """Return the rows of an option and the other fields of its stage, or of a stage by its name."""
    name = key.replace("-", "_")
    for row in _head(chat):
        if row[0] == key:
            return [row]
    of_stage = [_row(value) for value in chat.job.assembly.of_stage(name)]
    if of_stage and name not in (entry.key for entry in changeable()):
        return of_stage
    entry = find_option(key)
    others = map(_row, chat.job.assembly.of_stage(entry.stage))
    return list(dict.fromkeys([*option_rows(chat, entry), *others]))


def everything(chat: Chat) -> list[Row]:
    """Return rows for model, seed, presets and system message, then for all values that are not defaults."""
    assembly, settings = chat.job.assembly, chat.settings
    rows = [*_head(chat)]
    rows += [_row(value) for name, params in assembly.chain for value in assembly.of_entry(name, params)]
    for entry in changeable():
        is_given = settings.is_given(entry.key) or entry.key == "max_tokens"
        if is_given and not entry.field and entry.key != "stage":
            rows += option_rows(chat, entry)
    return rows


def shown(value: Any) -> str:
    """Return a value in the syntax of /set."""
    if isinstance(value, bool) or value is None:
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))  # 0 may have been typed
    return ", ".join(map(shown, value)) if isinstance(value, tuple) else str(value)


def history(conversation: Conversation, *, last: int | None = None) -> Iterator[str]:
    """Yield lines with the last turns, or all; an answer that was cut is followed by the reason."""
    turns = conversation.turns
    first = 0 if last is None else max(0, len(turns) - last)
    if first:
        yield f"({first} earlier turn{'' if first == 1 else 's'}; /history shows all.)"
    elif conversation.system is not None and turns:
        yield f"[system] {conversation.system}"
    for number, turn in enumerate(turns[first:], start=first + 1):
        yield f"[{number}] {turn.user}"
        end = f" [{turn.reason}]" if turn.reason in ("length", "interrupted") else ""
        yield f"{turn.answer.strip()}{end}"


def _head(chat: Chat) -> Iterator[Row]:
    conversation, presets = chat.conversation, chat.settings["preset"]
    yield "model", chat.settings["model"], _origin(chat, "model")
    yield "seed", str(conversation.seed), f"turn {len(conversation.turns) + 1} is next"
    yield "system", "none" if conversation.system is None else conversation.system, ""
    if presets:
        yield "preset", shown(presets), ""
    if structure := chat.job.structure:
        yield structure.kind.replace("_", "-"), structure.source, structure.origin


def _row(value: Assigned) -> Row:
    name = _NAMES.get((value.stage, value.field), f"{value.stage}.{value.field}")
    origin = _from(value.origin, value.said, name.replace("-", "_"))
    if value.when is not None:
        name = f"{value.stage}.{value.field} when {to_json(value.when.to_mapping())}"
    return name, shown(value.value), origin


def _origin(chat: Chat, key: str) -> str:
    return _from(chat.settings.origin(key), chat.settings.said(key), key)


def _from(origin: str, source: str, key: str) -> str:
    """Return the layer, and the source text unless that is the option's key."""
    return origin if source == f"`{key}`" else f"{origin} {source}".strip()
