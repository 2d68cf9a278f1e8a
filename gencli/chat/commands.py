"""The slash commands of a chat: functions from a chat to the next chat and a reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gencli.chat.file_commands import load_command, save_command
from gencli.chat.reply import CommandContext, Reply
from gencli.chat.setting_commands import (
    chain_command,
    color_command,
    preset_command,
    schema_command,
    seed_command,
    set_command,
    show_command,
    system_command,
)
from gencli.chat.state import Chat
from gencli.chat.turn_commands import (
    clear_command,
    edit_command,
    history_command,
    prompt_command,
    regen_command,
    stats_command,
    tokens_command,
    undo_command,
    why_command,
)
from gencli.config.peers import SLASH_NAMES, meant_command
from gencli.errors import UsageError
from processors.names import did_you_mean

__all__ = ["COMMANDS", "KEYS", "Command", "run_command"]

KEYS = """\
Alt-Enter or Ctrl-J starts a new line, Enter sends the turn, Tab completes a command after a slash.
Ctrl-C stops an answer and keeps its beginning, or empties the line; Ctrl-D leaves."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the usage of its argument, its help sentence, and its function."""

    values: str
    help: str
    run: Callable[[Chat, str, CommandContext], Reply]


def run_command(line: str, chat: Chat, env: CommandContext) -> Reply:
    """Run a line that begins with a slash. Raises UsageError for an unknown command or invalid argument."""
    name, _, rest = line.removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean([f"/{near}" for near in meant_command(name, COMMANDS, SLASH_NAMES)])
        fallback = "See /help. A turn that begins with a slash is typed with two."
        raise UsageError(f"There is no command /{name}.", hint=hint or fallback)
    rest = rest.strip()
    if rest and not command.values:
        raise UsageError(f"/{name} takes no argument, but {rest!r} was given.")
    return command.run(chat, rest, env)


def _help(chat: Chat, rest: str, env: CommandContext) -> Reply:
    rows = [(f"/{name} {command.values}".strip(), command.help) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in rows)
    return Reply(chat, "\n".join([*(f"{usage:<{width}}  {text}" for usage, text in rows), "", KEYS]))


def _quit(chat: Chat, rest: str, env: CommandContext) -> Reply:
    return Reply(chat, is_over=True)


COMMANDS: dict[str, Command] = {
    "help": Command("", "List the commands.", _help),
    "set": Command(
        "KEY VALUE", "Set an option, as in /set top-p 0.9; default undoes flag and /set.", set_command
    ),
    "show": Command("[KEY]", "Show the settings, or one of them, and where they come from.", show_command),
    "chain": Command("", "Show every stage, its values and their origin.", chain_command),
    "preset": Command("[NAME]", "Apply a preset, below flags and /set.", preset_command),
    "schema": Command("[SCHEMA]", "Show or set the JSON schema of answers; off removes it.", schema_command),
    "system": Command(
        "[TEXT]", "Show or set the system message; the text default removes it.", system_command
    ),
    "history": Command("[N]", "Show the conversation, or its last turns.", history_command),
    "prompt": Command(
        "", "Show the conversation as the model gets it, special tokens included.", prompt_command
    ),
    "undo": Command("", "Remove the last turn.", undo_command),
    "regen": Command("", "Answer the last turn again, with other draws.", regen_command),
    "edit": Command("[TEXT]", "Replace the last turn.", edit_command),
    "seed": Command("[N]", "Show or set the seed.", seed_command),
    "save": Command("FILE", "Write the conversation, seed and settings to a file.", save_command),
    "load": Command(
        "FILE", "Continue a saved conversation; flags and /set override its settings.", load_command
    ),
    "stats": Command("", "Show the cached, read and generated tokens of each answer.", stats_command),
    "tokens": Command("", "Show how much of the context is used.", tokens_command),
    "color": Command(
        "[SCALE]",
        "Show or set the colours of answers: probability, rank, entropy, decided, off.",
        color_command,
    ),
    "why": Command(
        "[N]", "Show what each stage did to the tokens of the last answer, or to token N.", why_command
    ),
    "clear": Command("", "Remove all turns; settings and system message stay.", clear_command),
    "quit": Command("", "Leave (as Ctrl-D does).", _quit),
}
