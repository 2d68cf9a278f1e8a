"""Slash commands that write a conversation to a file, or continue the conversation of a file."""

from __future__ import annotations

from pathlib import Path

from gencli.chat.reply import CommandContext, Reply
from gencli.chat.show import history, shown
from gencli.chat.state import Chat
from gencli.chat.transcript import load, restore, save
from gencli.errors import UsageError

__all__ = ["load_command", "save_command"]

_NUM_SHOWN = 2  # turns that /load shows


def save_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Write the conversation to a file."""
    path = _path("save", rest)
    save(chat, path)
    return Reply(chat, f"Saved {_turns(len(chat.conversation.turns))} to {path}.")


def load_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Continue the conversation of a file."""
    path = _path("load", rest)
    transcript = load(path)
    chat = restore(chat, transcript, f"transcript {path}")
    text = f"Loaded {_turns(len(chat.conversation.turns))} from {path}."
    if overrides := ", ".join(chat.above_transcript):
        text += f" Flags and /set override its settings: {overrides}."
    for key, value in (("seed", chat.conversation.seed), ("system", chat.conversation.system)):
        if key in chat.layers[-2][1] and chat.layers[-2][1][key] not in (value, str(value)):
            text += f" The {key} of the command line no longer applies: the transcript has its own."
    if transcript.model != (model := chat.settings["model"]):
        text += f" The transcript's model is {transcript.model}; {model} continues it."
    if transcript.presets != (presets := chat.settings["preset"]):
        old, new = shown(transcript.presets) or "none", shown(presets) or "none"
        text += f" The transcript's presets are {old}; here: {new}."
    return Reply(chat, "\n".join([text, *history(chat.conversation, last=_NUM_SHOWN)]))


def _path(name: str, rest: str) -> Path:
    if not rest:
        raise UsageError(f"/{name} needs a file, as in /{name} talk.json.")
    return Path(rest).expanduser()


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"
