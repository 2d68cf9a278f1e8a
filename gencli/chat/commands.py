"""Slash commands of a chat: functions from a chat to the next chat and a reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gencli.chat.conversation import Conversation, prompt_ids
from gencli.chat.show import about, everything, find_option, history, listed, option_rows, shown
from gencli.chat.state import Chat
from gencli.chat.transcript import load, restore, save
from gencli.config.options.run import Option
from gencli.config.peers import SLASH_NAMES, meant_command
from gencli.config.presets.find import list_presets
from gencli.core.events import Finish
from gencli.errors import UsageError
from gencli.text.tokenizer import Tokenizer
from processors.names import did_you_mean
from processors.params import whole

__all__ = ["COMMANDS", "KEYS", "Command", "CommandContext", "Reply", "run_command", "same_again"]

_NUM_SHOWN = 2  # turns that /load shows
KEYS = """\
Alt-Enter or Ctrl-J starts a new line, Enter sends the turn, Tab completes a command after a slash.
Ctrl-C stops an answer and keeps its beginning, or empties the line; Ctrl-D leaves."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Values that commands read, besides the chat.

    `context` is the context length in tokens, `answers` are the finishes of the answers since the start.
    """

    tokenizer: Tokenizer
    context: int
    describe_chain: Callable[[Chat], str]
    answers: tuple[Finish, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The next chat, a message, a draft for the input line, and whether the chat is over.

    `has_keys`: the message may name options by their keys in backticks.
    """

    chat: Chat
    text: str = ""
    draft: str = ""
    is_over: bool = False
    has_keys: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the usage of its argument, its help sentence, and its function."""

    values: str
    help: str
    run: Callable[[Chat, str, CommandContext], Reply]


def run_command(line: str, chat: Chat, env: CommandContext) -> Reply:
    """Run a line that begins with a slash. Raises UsageError for an unknown command or a wrong argument."""
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


def _set(chat: Chat, rest: str, env: CommandContext) -> Reply:
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


def _show(chat: Chat, rest: str, env: CommandContext) -> Reply:
    return Reply(chat, listed(about(chat, rest) if rest else everything(chat)), has_keys=True)


def _chain(chat: Chat, rest: str, env: CommandContext) -> Reply:
    return Reply(chat, env.describe_chain(chat).rstrip("\n"))


def _preset(chat: Chat, rest: str, env: CommandContext) -> Reply:
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


def _schema(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if not rest:
        structure = chat.job.structure
        text = f"{structure.kind.replace('_', '-')} {structure.source}".strip() if structure else "free"
        return Reply(chat, f"Answers are {text}.")
    if rest == "off":
        return Reply(chat.with_schema(""), "Answers are free from the next one on.")
    return Reply(chat.with_schema(rest), "Answers are documents of this schema from the next one on.")


def _system(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if chat.settings["raw"]:
        raise UsageError("A raw chat has no system message.")
    if not rest:
        system = chat.conversation.system
        return Reply(chat, "There is no system message." if system is None else system)
    text = "There is no system message now." if rest == "default" else "The system message is set."
    return Reply(chat.with_own(system=None if rest == "default" else rest), text)


def _undo(chat: Chat, rest: str, env: CommandContext) -> Reply:
    conversation = chat.conversation.undone()
    left = len(conversation.turns)
    return Reply(chat.with_conversation(conversation), f"Removed turn {left + 1}; {left} left.")


def _regen(chat: Chat, rest: str, env: CommandContext) -> Reply:
    conversation = chat.conversation.again()
    if chat.job.is_greedy:
        raise UsageError(
            "A greedy draw would give the same answer again.", hint="Raise it: /set temperature 0.8."
        )
    turn, attempt = len(conversation.turns), conversation.turns[-1].attempt
    text = f"Turn {turn}, attempt {attempt + 1}: its draws come from (seed, turn, {attempt})."
    return Reply(chat.with_conversation(conversation), text)


def same_again(before: Conversation, after: Conversation) -> str:
    """Return a notice if another attempt at the last turn gave the same answer, otherwise ""."""
    if not before.turns or not after.turns:
        return ""
    old, new = before.turns[-1], after.turns[-1]
    is_retry = old.user == new.user and old.attempt < new.attempt
    if not is_retry or old.answer != new.answer:
        return ""
    return (
        "The same answer again: with these settings other answers are unlikely. Raise the temperature "
        "(/set temperature), or truncate less (/chain shows the stages)."
    )


def _edit(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if rest:
        return Reply(chat.with_conversation(chat.conversation.edited(rest)))
    undone = chat.conversation.undone()
    text = f"Removed turn {len(chat.conversation.turns)}; edit it and send it again."
    return Reply(chat.with_conversation(undone), text, draft=chat.conversation.turns[-1].user)


def _seed(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if not rest:
        return Reply(chat, f"The seed is {chat.conversation.seed}.")
    seed = whole(rest)
    if seed is None or seed >= 2**64:
        raise UsageError(f"/seed needs a whole number from 0 to 2**64 - 1, not {rest[:60]!r}.")
    return Reply(chat.with_own(seed=seed), f"The seed is {rest} from the next answer on.")


def _save(chat: Chat, rest: str, env: CommandContext) -> Reply:
    path = _path("save", rest)
    save(chat, path)
    return Reply(chat, f"Saved {_turns(len(chat.conversation.turns))} to {path}.")


def _load(chat: Chat, rest: str, env: CommandContext) -> Reply:
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


def _history(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if rest and not (rest.isdecimal() and int(rest[:9])):
        raise UsageError(f"/history needs a number of turns from 1, not {rest!r}.")
    lines = list(history(chat.conversation, last=int(rest[:9]) if rest else None))
    return Reply(chat, "\n".join(lines) or "There is no turn yet.")


def _path(name: str, rest: str) -> Path:
    if not rest:
        raise UsageError(f"/{name} needs a file, as in /{name} talk.json.")
    return Path(rest).expanduser()


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _stats(chat: Chat, rest: str, env: CommandContext) -> Reply:
    rows: list[tuple[str, ...]] = [("answer", "prompt", "kept", "read", "output", "tok/s", "end")]
    for number, end in enumerate(env.answers, start=1):
        speed = (end.completion_tokens - 1) / end.timings.decode if end.timings.decode > 0 else 0.0
        counts = (end.prompt_tokens, end.cached_tokens, end.prompt_tokens - end.cached_tokens)
        shown = f"{speed:.1f}" if speed else "-"
        rows.append((str(number), *map(str, counts), str(end.completion_tokens), shown, end.reason))
    return Reply(chat, "\n".join("  ".join(f"{cell:>6}" for cell in row) for row in rows))


def _tokens(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if not chat.conversation.turns:
        return Reply(chat, f"No turn yet; the context has room for {env.context} tokens.")
    ids = _context_ids(chat, env)
    room = max(0, env.context - len(ids))
    return Reply(chat, f"{len(ids)} of {env.context} tokens are used, {room} are left.")


def _prompt(chat: Chat, rest: str, env: CommandContext) -> Reply:
    if not chat.conversation.turns:
        return Reply(chat, "No turn yet, so there is no prompt.")
    return Reply(chat, env.tokenizer.decode(_context_ids(chat, env), skip_special=False))


def _context_ids(chat: Chat, env: CommandContext) -> tuple[int, ...]:
    """Return the token ids of the conversation so far, as the model gets it."""
    return prompt_ids(
        chat.conversation,
        env.tokenizer,
        is_raw=chat.settings["raw"],
        context=2**63,
        tools=chat.job.structure.tools if chat.job.structure else (),
    )


def _clear(chat: Chat, rest: str, env: CommandContext) -> Reply:
    return Reply(chat.with_conversation(replace(chat.conversation, turns=())), "The conversation is empty.")


def _quit(chat: Chat, rest: str, env: CommandContext) -> Reply:
    return Reply(chat, is_over=True)


COMMANDS: dict[str, Command] = {
    "help": Command("", "List the commands.", _help),
    "set": Command("KEY VALUE", "Set an option, as in /set top-p 0.9; default undoes flag and /set.", _set),
    "show": Command("[KEY]", "Show the settings, or one of them, and where they come from.", _show),
    "chain": Command("", "Show every stage, its values and their origin.", _chain),
    "preset": Command("[NAME]", "Apply a preset, below flags and /set.", _preset),
    "schema": Command("[SCHEMA]", "Show or set the JSON schema of answers; off removes it.", _schema),
    "system": Command("[TEXT]", "Show or set the system message; the text default removes it.", _system),
    "history": Command("[N]", "Show the conversation, or its last turns.", _history),
    "prompt": Command("", "Show the conversation as the model gets it, special tokens included.", _prompt),
    "undo": Command("", "Remove the last turn.", _undo),
    "regen": Command("", "Answer the last turn again, with other draws.", _regen),
    "edit": Command("[TEXT]", "Replace the last turn.", _edit),
    "seed": Command("[N]", "Show or set the seed.", _seed),
    "save": Command("FILE", "Write the conversation, seed and settings to a file.", _save),
    "load": Command("FILE", "Continue a saved conversation; flags and /set override its settings.", _load),
    "stats": Command("", "Show the cached, read and generated tokens of each answer.", _stats),
    "tokens": Command("", "Show how much of the context is used.", _tokens),
    "clear": Command("", "Remove all turns; settings and system message stay.", _clear),
    "quit": Command("", "Leave (as Ctrl-D does).", _quit),
}
