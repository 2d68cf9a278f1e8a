"""Slash commands that show or change the settings of the next answers."""

from __future__ import annotations

from typing import Any

from gencli.chat.reply import CommandContext, Reply
from gencli.chat.show import about, everything, find_option, option_rows, shown
from gencli.chat.state import Chat
from gencli.config.options.run import Option
from gencli.config.presets.find import list_presets
from gencli.errors import UsageError
from processors.conversion import whole

__all__ = [
    "chain_command",
    "color_command",
    "preset_command",
    "schema_command",
    "seed_command",
    "set_command",
    "show_command",
    "system_command",
]


def set_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Set an option for the next answer; the value `default` removes the setting."""
    key, _, text = rest.partition(" ")
    if not key or not text:
        raise UsageError(
            "/set needs a name and a value, as in /set top-p 0.9.", hint="The value default undoes it."
        )
    entry = find_option(key)
    value = None if text == "default" else _typed(entry, text)
    chat = chat.with_value(entry.key, value)
    rows = option_rows(chat, entry)
    text = ", ".join(f"{name} is {shown}" for name, shown, _ in rows) + " from the next answer on"
    return Reply(chat, f"{text}." if value is not None else f"{text} ({rows[0][2]}).", has_keys=True)


def _typed(entry: Option, text: str) -> Any:
    if entry.type is not bool:
        return [text] if entry.many else text
    words = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
    if text not in words:
        raise UsageError(f"`{entry.key}` is on or off, not {text!r}.")
    return words[text]


def show_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the settings, or one of them, with their origins."""
    return Reply(chat, rows=tuple(about(chat, rest) if rest else everything(chat)))


def chain_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the stages of the next answer."""
    return Reply(chat, env.describe_chain(chat).rstrip("\n"))


def color_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Set or show the measure by which answers are coloured."""
    if not rest:
        return Reply(chat, f"Answers are coloured by: {chat.settings['color']}.")
    after = chat.with_value("color", rest)
    return Reply(after, f"Answers are coloured by: {after.settings['color']}, from the next one on.")


def preset_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Apply a preset, or list the presets."""
    if not rest:
        names = ", ".join(name for name, _, _ in list_presets())
        return Reply(chat, f"Presets here: {shown(chat.settings['preset']) or 'none'}. There are: {names}.")
    after = chat.with_preset(rest)
    text = (
        f"The preset {rest} applies from the next answer on, below flags and /set; /show lists the settings."
    )
    if after.conversation.seed != chat.conversation.seed:
        text += f" The seed is {after.conversation.seed}."
    if after.conversation.system != chat.conversation.system:
        text += " It sets the system message."
    return Reply(after, text)


def schema_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Set or show the schema of answers."""
    if not rest:
        structure = chat.job.structure
        text = f"{structure.kind.replace('_', '-')} {structure.source}".strip() if structure else "free"
        return Reply(chat, f"Answers are {text}.")
    if rest == "off":
        return Reply(chat.with_schema(""), "Answers are free from the next one on.")
    return Reply(chat.with_schema(rest), "Answers are documents of this schema from the next one on.")


def system_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Set or show the system message."""
    if chat.settings["raw"]:
        raise UsageError("A raw chat has no system message.")
    if not rest:
        system = chat.conversation.system
        return Reply(chat, "There is no system message." if system is None else system)
    text = "There is no system message now." if rest == "default" else "The system message is set."
    return Reply(chat.with_own(system=None if rest == "default" else rest), text)


def seed_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Set or show the seed."""
    if not rest:
        return Reply(chat, f"The seed is {chat.conversation.seed}.")
    seed = whole(rest)
    if seed is None or seed >= 2**64:
        raise UsageError(f"/seed needs a whole number from 0 to 2**64 - 1, not {rest[:60]!r}.")
    return Reply(chat.with_own(seed=seed), f"The seed is {rest} from the next answer on.")
