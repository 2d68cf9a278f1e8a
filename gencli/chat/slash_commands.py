"""The slash commands of a chat: functions from a chat to the next chat and a reply; the tables that they
show, and tab completion of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gencli.chat.chat_state import CHANGEABLE, Chat, ChatTurn, Conversation, load, prompt_ids, restore, save
from gencli.config.chain_assembly import Assembly
from gencli.config.job import Job
from gencli.config.option import Option
from gencli.config.option_names import SLASH_NAMES, meant_command, meant_option
from gencli.config.preset_files import list_presets, paths, presets, stage_values, with_prefix
from gencli.config.run_options import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES, option
from gencli.config.settings import Assigned
from gencli.core.events import Finish
from gencli.errors import UsageError
from gencli.helpers import counted
from gencli.json_text import to_json
from gencli.structured.output_spec import KINDS
from gencli.text.tokenizer import Tokenizer
from processors.errors import did_you_mean
from processors.params import whole

SettingRow = tuple[str, str, str]  # name, value, origin
_NAMES = {
    (entry.stage, entry.field): entry.flag.lstrip("-") for entry in OPTIONS if entry.stage and not entry.when
}
_OWN = {"seed": "/seed", "system": "/system", "preset": "/preset", **dict.fromkeys(KINDS, "/schema")}


def run_command(line: str, chat: Chat, env: CommandContext) -> CommandResult:
    """Run a line that begins with a slash. Raises UsageError for an unknown command or invalid argument."""
    name, _, argument = line.removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean([f"/{near}" for near in meant_command(name, COMMANDS, SLASH_NAMES)])
        fallback = "See /help. To send a turn that begins with a slash, type two."
        raise UsageError(f"There is no command /{name}.", hint=hint or fallback)
    argument = argument.strip()
    if argument and not command.values:
        raise UsageError(f"/{name} takes no argument, but {argument!r} was given.")
    return command.run(chat, argument, env)


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the usage of its argument, its help sentence, and its function."""

    values: str
    help: str
    run: Callable[[Chat, str, CommandContext], CommandResult]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Values that commands read, besides the chat.

    `context`: context length in tokens. `answers`: Finish events of the answers since the start. `explain`
    returns the explanation of the chat's last answer, or of its token at a position.
    """

    tokenizer: Tokenizer
    context: int
    describe_chain: Callable[[Chat], str]
    explain: Callable[[Chat, int | None], str]
    answers: tuple[Finish, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The next chat, a message or a table, a draft for the input line, and whether the chat has ended.

    `is_edit`: the next turn replaces the last one. `has_keys`: the message may name options by keys in
    backticks, as rows do.
    """

    chat: Chat
    text: str = ""
    rows: tuple[SettingRow, ...] = ()
    draft: str = ""
    is_edit: bool = False
    is_over: bool = False
    has_keys: bool = False


_Run = Callable[[Chat, str, CommandContext], CommandResult]
COMMANDS: dict[str, Command] = {}  # in the order of /help


def _command(values: str, sentence: str) -> Callable[[_Run], _Run]:
    """Return a decorator that registers a function as a command; its help is `sentence`."""

    def register(run: _Run) -> _Run:
        COMMANDS[run.__name__.removesuffix("_command")] = Command(values, sentence, run)
        return run

    return register


@_command("", "List the commands.")
def help_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    rows = [(f"/{name} {command.values}".strip(), command.help) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in rows)
    return CommandResult(chat, "\n".join([*(f"{usage:<{width}}  {text}" for usage, text in rows), "", KEYS]))


@_command("KEY VALUE", "Set an option, as in /set top-p 0.9; default undoes flag and /set.")
def set_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    key, _, text = argument.partition(" ")
    if not key or not text:
        raise UsageError(
            "/set needs a name and a value, as in /set top-p 0.9.", hint="The value default undoes it."
        )
    entry = find_option(key)
    value = None if text == "default" else _typed(entry, text)
    chat = chat.with_value(entry.key, value)
    rows = option_rows(chat, entry)
    text = ", ".join(f"{name} is {shown}" for name, shown, _ in rows) + " from the next answer on"
    return CommandResult(chat, f"{text}." if value is not None else f"{text} ({rows[0][2]}).", has_keys=True)


def _typed(entry: Option, text: str) -> Any:
    if entry.type is not bool:
        return [text] if entry.many else text
    words = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
    if text not in words:
        raise UsageError(f"`{entry.key}` is on or off, not {text!r}.")
    return words[text]


@_command("[KEY]", "Show the settings, or one of them, and where they come from.")
def show_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    return CommandResult(chat, rows=tuple(about(chat, argument) if argument else everything(chat)))


@_command("", "Show every stage, its values and their origin.")
def chain_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    return CommandResult(chat, env.describe_chain(chat).rstrip("\n"))


@_command("[NAME]", "Apply a preset, below flags and /set.")
def preset_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not argument:
        names = ", ".join(name for name, _, _ in list_presets())
        return CommandResult(
            chat, f"Presets here: {shown(chat.settings['preset']) or 'none'}. There are: {names}."
        )
    after = chat.with_preset(argument)
    text = (
        f"The preset {argument} applies from the next answer on, below flags and /set; "
        "/show lists the settings."
    )
    if after.conversation.seed != chat.conversation.seed:
        text += f" The seed is {after.conversation.seed}."
    if after.conversation.system != chat.conversation.system:
        text += " It sets the system message."
    return CommandResult(after, text)


@_command("[SCHEMA]", "Show or set the JSON schema of answers; off removes it.")
def schema_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not argument:
        structure = chat.job.structure
        text = f"{structure.kind.replace('_', '-')} {structure.source}".strip() if structure else "free"
        return CommandResult(chat, f"Answers are {text}.")
    if argument == "off":
        return CommandResult(chat.with_schema(""), "Answers have no schema from the next one on.")
    return CommandResult(
        chat.with_schema(argument), "Answers are documents of this schema from the next one on."
    )


@_command("[TEXT]", "Show or set the system message; the text default removes it.")
def system_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if chat.settings["raw"]:
        raise UsageError("A raw chat has no system message.")
    if not argument:
        system = chat.conversation.system
        return CommandResult(chat, "There is no system message." if system is None else system)
    text = "There is no system message now." if argument == "default" else "The system message is set."
    return CommandResult(chat.with_fixed(system=None if argument == "default" else argument), text)


@_command("[N]", "Show the conversation, or its last turns.")
def history_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if argument and not (argument.isdecimal() and int(argument[:9])):
        raise UsageError(f"/history needs a number of turns from 1, not {argument!r}.")
    lines = list(history(chat.conversation, last=int(argument[:9]) if argument else None))
    return CommandResult(chat, "\n".join(lines) or "There is no turn yet.")


@_command("", "Show the conversation as the model gets it, special tokens included.")
def prompt_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not chat.conversation.turns:
        return CommandResult(chat, "No turn yet, so there is no prompt.")
    return CommandResult(chat, env.tokenizer.decode(_context_ids(chat, env), skip_special=False))


@_command("", "Remove the last turn.")
def undo_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    conversation = chat.conversation.undone()
    left = len(conversation.turns)
    return CommandResult(chat.with_conversation(conversation), f"Removed turn {left + 1}; {left} left.")


@_command("", "Answer the last turn again, with other draws.")
def regen_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    conversation = chat.conversation.again()
    if _is_repeated(chat.conversation.turns[-1], chat.job):
        raise UsageError(
            "A greedy draw would give the same answer again.", hint="Raise it: /set temperature 0.8."
        )
    turn, attempt = len(conversation.turns), conversation.turns[-1].attempt
    text = f"Turn {turn}, attempt {attempt + 1}: its draws come from (seed, turn, {attempt})."
    return CommandResult(chat.with_conversation(conversation), text)


def _is_repeated(turn: ChatTurn, job: Job) -> bool:
    """Return whether the job takes the most likely tokens, which the turn's answer has already."""
    if not job.is_greedy or turn.job is None or turn.reason == "interrupted":
        return False
    before, now = (
        replace(each, assembly=Assembly(each.chain), draw_origin="", seed=0) for each in (turn.job, job)
    )
    return before == now


@_command("[TEXT]", "Replace the last turn.")
def edit_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    # Without a text the turn stays until another one is sent.
    if argument:
        return CommandResult(chat.with_conversation(chat.conversation.edited(argument)))
    draft = chat.conversation.last().user
    text = f"Turn {len(chat.conversation.turns)}: Enter replaces it, Ctrl-C keeps it."
    return CommandResult(chat, text, draft=draft, is_edit=True)


@_command("[N]", "Show or set the seed.")
def seed_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not argument:
        return CommandResult(chat, f"The seed is {chat.conversation.seed}.")
    seed = whole(argument)
    if seed is None or seed >= 2**64:
        raise UsageError(f"/seed needs a whole number from 0 to 2**64 - 1, not {argument[:60]!r}.")
    return CommandResult(chat.with_fixed(seed=seed), f"The seed is {argument} from the next answer on.")


@_command("FILE", "Write the conversation, seed and settings to a file.")
def save_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    path = _path("save", argument)
    save(chat, path)
    return CommandResult(chat, f"Saved {counted(len(chat.conversation.turns), 'turn')} to {path}.")


@_command("FILE", "Continue a saved conversation; flags and /set override its settings.")
def load_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    path = _path("load", argument)
    transcript = load(path)
    chat = restore(chat, transcript, f"transcript {path}")
    text = f"Loaded {counted(len(chat.conversation.turns), 'turn')} from {path}."
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
    return CommandResult(chat, "\n".join([text, *history(chat.conversation, last=2)]))


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise UsageError(f"/{name} needs a file, as in /{name} talk.json.")
    return Path(argument).expanduser()


@_command("", "Show the cached, read and generated tokens of each answer.")
def stats_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    rows: list[tuple[str, ...]] = [("answer", "prompt", "kept", "read", "output", "tok/s", "end")]
    for number, end in enumerate(env.answers, start=1):
        speed = (end.decoded_tokens - 1) / end.timings.decode if end.timings.decode > 0 else 0.0
        counts = (end.prompt_tokens, end.cached_tokens, end.prompt_tokens - end.cached_tokens)
        shown = f"{speed:.1f}" if speed else "-"
        rows.append((str(number), *map(str, counts), str(end.completion_tokens), shown, end.reason))
    return CommandResult(chat, "\n".join("  ".join(f"{cell:>6}" for cell in row) for row in rows))


@_command("", "Show how much of the context is used.")
def tokens_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not chat.conversation.turns:
        return CommandResult(chat, f"No turn yet; the context has room for {env.context} tokens.")
    ids = _context_ids(chat, env)
    room = max(0, env.context - len(ids))
    return CommandResult(chat, f"{len(ids)} of {env.context} tokens are used, {room} are left.")


def _context_ids(chat: Chat, env: CommandContext) -> tuple[int, ...]:
    """Return the token ids of the conversation so far, as passed to the model."""
    return prompt_ids(
        chat.conversation,
        env.tokenizer,
        is_raw=chat.settings["raw"],
        context=2**63,
        instructions=chat.job.instructions,
    )


@_command("[SCALE]", "Show or set the colours of answers: probability, rank, entropy, decided, off.")
def color_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    if not argument:
        return CommandResult(chat, f"Answers are coloured by: {chat.settings['color']}.")
    after = chat.with_value("color", argument)
    return CommandResult(after, f"Answers are coloured by: {after.settings['color']}, from the next one on.")


@_command("[N]", "Show what each stage did to the tokens of the last answer, or to token N.")
def why_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    position = whole(argument)
    if argument and position is None:
        raise UsageError(f"/why needs the number of a token, from 0 on, not {argument[:60]!r}.")
    return CommandResult(chat, env.explain(chat, position).rstrip("\n"))


@_command("", "Remove all turns; settings and system message stay.")
def clear_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    return CommandResult(
        chat.with_conversation(replace(chat.conversation, turns=())), "The conversation is empty."
    )


@_command("", "Leave (as Ctrl-D does).")
def quit_command(chat: Chat, argument: str, env: CommandContext) -> CommandResult:
    return CommandResult(chat, is_over=True)


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


def find_option(key: str) -> Option:
    """Return an option of /set by key, flag or short flag. Raises UsageError with the nearest name."""
    name = key.lstrip("-").replace("-", "_")
    by_flag = {flag.lstrip("-"): entry for entry in CHANGEABLE.values() for flag in entry.names}
    if entry := CHANGEABLE.get(name) or by_flag.get(name):
        return entry
    if name in _OWN:
        raise UsageError(f"{key} has its own command.", hint=f"See {_OWN[name]}.")
    spelled = {key: entry.flag.lstrip("-") for key, entry in CHANGEABLE.items()}
    raise UsageError(f"A chat cannot set {key!r}.", hint=meant_option(key, spelled) or "See /show.")


def option_rows(chat: Chat, entry: Option) -> list[SettingRow]:
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


def about(chat: Chat, key: str) -> list[SettingRow]:
    """Return the rows of an option and the other fields of its stage, or of a stage by its name."""
    name = key.replace("-", "_")
    for row in _head(chat):
        if row[0] == key:
            return [row]
    of_stage = [_row(value) for value in chat.job.assembly.of_stage(name)]
    if of_stage and name not in CHANGEABLE:
        return of_stage
    entry = find_option(key)
    others = map(_row, chat.job.assembly.of_stage(entry.stage))
    return list(dict.fromkeys([*option_rows(chat, entry), *others]))


def everything(chat: Chat) -> list[SettingRow]:
    """Return rows for model, seed, presets and system message, then for all values that are not defaults."""
    assembly, settings = chat.job.assembly, chat.settings
    rows = [*_head(chat)]
    rows += [_row(value) for name, params in assembly.chain for value in assembly.of_entry(name, params)]
    for entry in CHANGEABLE.values():
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
        yield f"({counted(first, 'earlier turn')}; /history shows all.)"
    elif conversation.system is not None and turns:
        yield f"[system] {conversation.system}"
    for number, turn in enumerate(turns[first:], start=first + 1):
        yield f"[{number}] {turn.user}"
        end = f" [{turn.reason}]" if turn.reason in ("length", "interrupted") else ""
        yield f"{turn.answer.strip()}{end}"


def _head(chat: Chat) -> Iterator[SettingRow]:
    conversation, presets = chat.conversation, chat.settings["preset"]
    yield "model", chat.settings["model"], _origin(chat, "model")
    yield "seed", str(conversation.seed), f"turn {len(conversation.turns) + 1} is next"
    yield "system", "none" if conversation.system is None else conversation.system, ""
    if presets:
        yield "preset", shown(presets), ""
    if structure := chat.job.structure:
        yield structure.kind.replace("_", "-"), structure.source, structure.origin


def _row(value: Assigned) -> SettingRow:
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


KEYS = """\
Alt-Enter or Ctrl-J starts a new line, Enter sends the turn, Tab completes a command after a slash.
Ctrl-C stops an answer and keeps its beginning, or empties the line; Ctrl-D leaves."""


def complete(line: str, chat: Chat) -> tuple[str, list[str]]:
    """Return the last word of a line up to the cursor, and its possible completions."""
    if not line.startswith("/") or line.startswith("//"):
        return "", []
    name, space, argument = line[1:].partition(" ")
    if not space:
        return line, [f"/{command}" for command in COMMANDS if command.startswith(name)]
    if (completer := _COMPLETERS.get(name)) is None:
        return "", []
    word = argument.rpartition(" ")[2] if name == "set" else argument
    return word, completer(argument, chat)


def _set(argument: str, chat: Chat) -> list[str]:
    key, space, value = argument.partition(" ")
    options = {entry.flag.lstrip("-"): entry for entry in CHANGEABLE.values()}
    if not space:
        return with_prefix(key, options)
    if (entry := options.get(key)) is None:
        return []
    if key == "stage":
        return stage_values(value)
    choices = ("on", "off") if entry.type is bool else entry.choices
    return with_prefix(value, [*choices, "default"])


def _show(argument: str, chat: Chat) -> list[str]:
    names = [entry.flag.lstrip("-") for entry in CHANGEABLE.values()]
    stages = list(dict.fromkeys(name for name, _ in chat.job.assembly.chain))
    return with_prefix(argument, dict.fromkeys(["model", "seed", "system", *names, *stages]))


def _schema(argument: str, chat: Chat) -> list[str]:
    return [*with_prefix(argument, ["off"]), *paths(argument, suffixes=(".json", ".yaml", ".yml"))]


_COMPLETERS: dict[str, Callable[[str, Chat], list[str]]] = {
    "set": _set,
    "show": _show,
    "preset": lambda argument, chat: presets(argument),
    "color": lambda argument, chat: with_prefix(argument, option("color").choices),
    "schema": _schema,
    "system": lambda argument, chat: with_prefix(argument, ["default"]),
    **dict.fromkeys(("save", "load"), lambda argument, chat: paths(argument, suffixes=(".json",))),
}
