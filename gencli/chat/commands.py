"""What can be typed after a slash: functions from a chat to the next one and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gencli.chat.conversation import Conversation, prompt_ids
from gencli.chat.show import about, acting, everything, find_option, history, listed, shown
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
Alt-Enter or Ctrl-J begins a new line of the turn, Enter sends it; Tab completes what follows a slash.
Ctrl-C stops an answer and keeps its beginning, or empties the line; Ctrl-D leaves."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What commands may look at beside the chat; `answers` are those given since the start."""

    tokenizer: Tokenizer
    context: int
    describe_chain: Callable[[Chat], str]
    answers: tuple[Finish, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The chat from now on, what to say, a text for the input line, and whether to leave."""

    chat: Chat
    text: str = ""
    draft: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what follows its name, a sentence about it, and what it does."""

    values: str
    help: str
    run: Callable[[Chat, str, CommandContext], Reply]


def run_command(line: str, chat: Chat, scene: CommandContext) -> Reply:
    """Carry out a line that begins with a slash. Raises UsageError for one that cannot be."""
    name, _, rest = line.removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean([f"/{found}" for found in meant_command(name, COMMANDS, SLASH_NAMES)])
        fallback = "See /help; a turn that begins with a slash needs two."
        raise UsageError(f"There is no command /{name}.", hint=hint or fallback)
    rest = rest.strip()
    if rest and not command.values:
        raise UsageError(f"/{name} takes nothing after it, but {rest!r} was given.")
    return command.run(chat, rest, scene)


def _help(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    rows = [(f"/{name} {command.values}".strip(), command.help) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in rows)
    return Reply(chat, "\n".join([*(f"{usage:<{width}}  {text}" for usage, text in rows), "", KEYS]))


def _set(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    key, _, text = rest.partition(" ")
    if not key or not text:
        raise UsageError("/set needs a name and a value, as in /set top-p 0.9.", hint="default undoes it.")
    entry = find_option(key)
    value = None if text == "default" else _typed(entry, text)
    chat = chat.with_value(entry.key, value)
    rows = acting(chat, entry)
    said = ", ".join(f"{name} is {what}" for name, what, _ in rows) + " from the next answer on"
    return Reply(chat, f"{said}." if value is not None else f"{said} ({rows[0][2]}).")


def _typed(entry: Option, text: str) -> Any:
    if entry.type is not bool:
        return [text] if entry.many else text
    words = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
    if text not in words:
        raise UsageError(f"{entry.flag} is on or off, not {text!r}.")
    return words[text]


def _show(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    return Reply(chat, listed(about(chat, rest) if rest else everything(chat)))


def _chain(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    return Reply(chat, scene.describe_chain(chat).rstrip("\n"))


def _preset(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if not rest:
        names = ", ".join(name for name, _, _ in list_presets())
        return Reply(chat, f"Presets here: {shown(chat.settings['preset']) or 'none'}. There are: {names}.")
    after = chat.with_preset(rest)
    said = f"The preset {rest} holds from the next answer on, below flags and /set; /show lists what acts."
    if after.conversation.seed != chat.conversation.seed:
        said += f" The seed is {after.conversation.seed}."
    if after.conversation.system != chat.conversation.system:
        said += " It brings its system message."
    return Reply(after, said)


def _schema(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if not rest:
        structure = chat.job.structure
        said = f"{structure.kind.replace('_', '-')} {structure.source}".strip() if structure else "free"
        return Reply(chat, f"Answers are {said}.")
    if rest == "off":
        return Reply(chat.with_schema(""), "Answers are free from the next one on.")
    return Reply(chat.with_schema(rest), "Answers are documents of this schema from the next one on.")


def _system(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if chat.settings["raw"]:
        raise UsageError("A raw chat has no system message.")
    if not rest:
        said = chat.conversation.system
        return Reply(chat, "There is no system message." if said is None else said)
    said = "There is no system message now." if rest == "default" else "The system message is set."
    return Reply(chat.with_own(system=None if rest == "default" else rest), said)


def _undo(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    conversation = chat.conversation.undone()
    left = len(conversation.turns)
    return Reply(chat.with_conversation(conversation), f"Took back turn {left + 1}; {left} left.")


def _regen(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    conversation = chat.conversation.again()
    if chat.job.is_greedy:
        raise UsageError(
            "A greedy draw would give the same answer again.", hint="Raise it: /set temperature 0.8."
        )
    turn, attempt = len(conversation.turns), conversation.turns[-1].attempt
    said = f"Turn {turn}, attempt {attempt + 1}: its draws come from (seed, turn, {attempt})."
    return Reply(chat.with_conversation(conversation), said)


def same_again(before: Conversation, after: Conversation) -> str:
    """What to say of another attempt at a turn that gave the same answer; empty for any other answer."""
    one, other = before.turns[-1:], after.turns[-1:]
    is_again = one and other and one[0].said == other[0].said and one[0].attempt < other[0].attempt
    if not is_again or one[0].answer != other[0].answer:
        return ""
    return (
        "The same answer again: with these settings hardly another is likely. A higher /set temperature, or "
        "fewer cuts (/chain shows them), lets others come."
    )


def _edit(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if rest:
        return Reply(chat.with_conversation(chat.conversation.edited(rest)))
    undone = chat.conversation.undone()
    said = f"Took back turn {len(chat.conversation.turns)}; say it in other words."
    return Reply(chat.with_conversation(undone), said, draft=chat.conversation.turns[-1].said)


def _seed(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if not rest:
        return Reply(chat, f"The seed is {chat.conversation.seed}.")
    seed = whole(rest)
    if seed is None or seed >= 2**64:
        raise UsageError(f"/seed needs a whole number from 0 to 2**64 - 1, not {rest[:60]!r}.")
    return Reply(chat.with_own(seed=seed), f"The seed is {rest} from the next answer on.")


def _save(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    path = _path("save", rest)
    save(chat, path)
    return Reply(chat, f"Saved {_turns(len(chat.conversation.turns))} to {path}.")


def _load(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    path = _path("load", rest)
    transcript = load(path)
    chat = restore(chat, transcript, f"transcript {path}")
    said = f"Loaded {_turns(len(chat.conversation.turns))} from {path}."
    if held := ", ".join(chat.above_transcript):
        said += f" Above its settings stays what flags or /set gave: {held}."
    for key, value in (("seed", chat.conversation.seed), ("system", chat.conversation.system)):
        if key in chat.layers[-2][1] and chat.layers[-2][1][key] not in (value, str(value)):
            said += f" The {key} of the command line no longer holds: the conversation has its own."
    if transcript.model != (here := chat.settings["model"]):
        said += f" They were spoken with {transcript.model}; {here} goes on."
    if transcript.presets != (there := chat.settings["preset"]):
        said += f" Their presets were {shown(transcript.presets) or 'none'}; here: {shown(there) or 'none'}."
    return Reply(chat, "\n".join([said, *history(chat.conversation, last=_NUM_SHOWN)]))


def _history(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if rest and not (rest.isdecimal() and int(rest[:9])):
        raise UsageError(f"/history needs a number of turns from 1, not {rest!r}.")
    lines = list(history(chat.conversation, last=int(rest[:9]) if rest else None))
    return Reply(chat, "\n".join(lines) or "Nothing has been said yet.")


def _path(name: str, rest: str) -> Path:
    if not rest:
        raise UsageError(f"/{name} needs a file, as in /{name} talk.json.")
    return Path(rest).expanduser()


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _stats(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    rows: list[tuple[str, ...]] = [("answer", "prompt", "kept", "read", "output", "tok/s", "end")]
    for number, end in enumerate(scene.answers, start=1):
        speed = (end.completion_tokens - 1) / end.timings.decode if end.timings.decode > 0 else 0.0
        counts = (end.prompt_tokens, end.cached_tokens, end.prompt_tokens - end.cached_tokens)
        shown = f"{speed:.1f}" if speed else "-"
        rows.append((str(number), *map(str, counts), str(end.completion_tokens), shown, end.reason))
    return Reply(chat, "\n".join("  ".join(f"{cell:>6}" for cell in row) for row in rows))


def _tokens(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if not chat.conversation.turns:
        return Reply(chat, f"No turn yet; the context has room for {scene.context} tokens.")
    ids = _spoken(chat, scene)
    room = max(0, scene.context - len(ids))
    return Reply(chat, f"{len(ids)} of {scene.context} tokens are used, {room} are left.")


def _prompt(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    if not chat.conversation.turns:
        return Reply(chat, "No turn yet, so there is no prompt.")
    return Reply(chat, scene.tokenizer.decode(_spoken(chat, scene), skip_special=False))


def _spoken(chat: Chat, scene: CommandContext) -> tuple[int, ...]:
    """The conversation so far as the model gets it."""
    return prompt_ids(
        chat.conversation,
        scene.tokenizer,
        is_raw=chat.settings["raw"],
        context=2**63,
        tools=chat.job.structure.tools if chat.job.structure else (),
    )


def _clear(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    return Reply(chat.with_conversation(replace(chat.conversation, turns=())), "The conversation is empty.")


def _quit(chat: Chat, rest: str, scene: CommandContext) -> Reply:
    return Reply(chat, is_over=True)


COMMANDS: dict[str, Command] = {
    "help": Command("", "List the commands.", _help),
    "set": Command("KEY VALUE", "Set an option, as in /set top-p 0.9; default undoes flag and /set.", _set),
    "show": Command("[KEY]", "Show the settings, or one of them, and where they come from.", _show),
    "chain": Command("", "Show every stage, its values and their origin.", _chain),
    "preset": Command("[NAME]", "Take the values of a preset, below flags and /set.", _preset),
    "schema": Command("[SCHEMA]", "Show or set the JSON schema of answers; off lets them be free.", _schema),
    "system": Command("[TEXT]", "Show or set the system message; the text default removes it.", _system),
    "history": Command("[N]", "Show what was said, all of it or the last turns.", _history),
    "prompt": Command("", "Show the conversation as the model gets it, special tokens included.", _prompt),
    "undo": Command("", "Take back the last turn.", _undo),
    "regen": Command("", "Answer the last turn again, with other draws.", _regen),
    "edit": Command("[TEXT]", "Say the last turn in other words.", _edit),
    "seed": Command("[N]", "Show or set the seed.", _seed),
    "save": Command("FILE", "Write the conversation, seed and settings to a file.", _save),
    "load": Command(
        "FILE", "Go on with a conversation that was saved; flags and /set stay above its settings.", _load
    ),
    "stats": Command("", "Show for each answer the tokens that were kept, read and made.", _stats),
    "tokens": Command("", "Show how much of the context is used.", _tokens),
    "clear": Command("", "Begin anew; settings and system message stay.", _clear),
    "quit": Command("", "Leave (as Ctrl-D does).", _quit),
}
