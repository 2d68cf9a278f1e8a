"""`Chat`: a conversation as an immutable value, the settings of its next answer, and its transcript as a
JSON document.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.config.job import Job, make_job
from gencli.config.layers import gather, with_chat_draw
from gencli.config.option import Option
from gencli.config.run_options import OPTIONS, option
from gencli.config.settings import FLAG, Settings, resolve, untraced
from gencli.errors import ConfigError, GenerationError, UsageError
from gencli.files import read_file, replaced
from gencli.structured.output_spec import KINDS
from gencli.templates.chat_templates import NOTHING, Instructions, render_conversation

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A user's message and its answer.

    `reason`: why the answer ended, "" before its end. `attempt`: number of retries. `job`: settings of the
    answer, None if they are unknown.
    """

    user: str
    answer: str = ""
    reason: str = ""
    attempt: int = 0
    job: Job | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order. Draws of a turn depend on `seed` and the turn's index."""

    seed: int
    system: str | None = None
    turns: tuple[ChatTurn, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether the last turn has no answer yet."""
        return bool(self.turns) and not self.turns[-1].reason

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages for a chat template."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.user})
            if turn.reason:
                messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def asked(self, text: str) -> Conversation:
        """Return a copy with a new turn that has no answer yet."""
        return replace(self, turns=(*self.turns, ChatTurn(text)))

    def answered(self, text: str, reason: str, job: Job | None = None) -> Conversation:
        """Return a copy with the answer of the last turn. Raises UsageError without a turn."""
        return self._with_last(replace(self.last(), answer=text, reason=reason, job=job))

    def undone(self) -> Conversation:
        """Return a copy without the last turn. Raises UsageError if there is none."""
        self.last()
        return replace(self, turns=self.turns[:-1])

    def again(self) -> Conversation:
        """Return a copy whose last turn is unanswered, as its next attempt. Raises UsageError without one."""
        last = self.last()
        return self._with_last(ChatTurn(last.user, attempt=last.attempt + 1))

    def edited(self, text: str) -> Conversation:
        """Return a copy with another last turn, unanswered. Raises UsageError if there is no turn."""
        self.last()
        return self._with_last(ChatTurn(text))

    def last(self) -> ChatTurn:
        """Return the last turn. Raises UsageError if there is none."""
        if not self.turns:
            raise UsageError("There is no turn yet.")
        return self.turns[-1]

    def _with_last(self, turn: ChatTurn) -> Conversation:
        return replace(self, turns=(*self.turns[:-1], turn))


def draw_seed(conversation: Conversation) -> int:
    """Return the seed of the last turn: derive(seed, index of the turn), for attempt k derived by k again."""
    from processors.rng import derive

    seed = derive(conversation.seed, len(conversation.turns) - 1)
    attempt = conversation.turns[-1].attempt
    return derive(seed, attempt) if attempt else seed


def prompt_ids(
    conversation: Conversation,
    tokenizer: Tokenizer,
    *,
    is_raw: bool,
    context: int,
    instructions: Instructions = NOTHING,
) -> tuple[int, ...]:
    """Return the prompt ids of the next answer. `context`: in tokens.

    Raises GenerationError if the prompt leaves no room for an answer.
    """
    if is_raw:
        text = "\n".join(turn.user + turn.answer for turn in conversation.turns)
        ids = tokenizer.encode(instructions.before + text)
    else:
        text = render_conversation(tokenizer, conversation.messages, instructions=instructions)
        ids = tokenizer.encode(text, special=False)
    if len(ids) >= context:
        raise GenerationError(
            f"The conversation has {len(ids)} tokens, but the model's context is {context} with the answer.",
            hint="/undo removes the last turn, /clear all of them.",
        )
    return tuple(ids)


FREE = {kind: "" if option(kind).default is None else option(kind).default for kind in KINDS}
_Typed = tuple[str, Mapping[str, Any]]  # origin, values as typed
_FOREIGN = {
    *("file", "chat", "n", "max_batch", "format", "output", "stream", "stats", "show_chain", "log"),
    *("template", "vars", "show_prompt", "token_ids", "trace", "trace_top", "keep_logits"),
    # A turn is shown while it is generated, so nothing may replace its text later.
    *("partial", "retries", "parsed", "select"),
    *(entry.key for entry in OPTIONS if entry.section == "Search"),
}
CHAT_OPTIONS: tuple[Option, ...] = tuple(entry for entry in OPTIONS if entry.key not in _FOREIGN)
# The seed has its own command. Only the command line may name models, code and files; a transcript cannot.
_FIXED = ("seed", "plugin", "preset", "contrast", *KINDS)
_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops", "Structure")


# What /set accepts and a transcript records.
CHANGEABLE: Mapping[str, Option] = {
    entry.key: entry for entry in CHAT_OPTIONS if entry.section in _SECTIONS and entry.key not in _FIXED
}
_OPTIONS = frozenset(entry.key for entry in CHAT_OPTIONS)
_OF_CONVERSATION = ("seed", "system")


@dataclass(frozen=True)  # no slots: cached properties
class Chat:
    """A conversation, and layers of typed values: of a loaded transcript, of flags, and of /set.

    `fixed`: "seed" or "system" if the user set it in the chat; presets then do not change it.
    """

    conversation: Conversation
    layers: tuple[_Typed, ...]
    fixed: frozenset[str] = frozenset()

    @cached_property
    def settings(self) -> Settings:
        """Every option's value and origin."""
        is_raw = any(values.get("raw") for _, values in self.layers)
        *transcript, (_, flags), above = self.layers
        gathered = gather(flags, untraced(os.environ), is_neutral=True)
        *below, typed = gathered.layers
        first = ("chat", {} if is_raw else {"chat": True})
        assert gathered.registry is not None
        settings = resolve(first, *below, *transcript, typed, above, registry=gathered.registry)
        return with_chat_draw(settings, gathered.registry)

    @cached_property
    def job(self) -> Job:
        """The job of the next answer. Raises UsageError for conflicting settings."""
        return make_job(self.settings)

    @property
    def typed(self) -> dict[str, Any]:
        """The typed values of the options that a transcript records."""
        items = [item for _, values in self.layers for item in values.items()]
        return {key: value for key, value in items if key in CHANGEABLE}

    @property
    def above_transcript(self) -> list[str]:
        """The names of settings from flags, /set or /schema, which override a transcript's."""
        keys = [key for _, values in self.layers[-2:] for key in values]
        names = {key: option(key).flag.lstrip("-") for key in keys if key in CHANGEABLE}
        return [*names.values(), *(["schema"] if set(KINDS) & set(keys) else [])]

    def with_conversation(self, conversation: Conversation) -> Chat:
        """Return a copy with another conversation."""
        return replace(self, conversation=conversation)

    def with_fixed(self, **values: Any) -> Chat:
        """Return a copy with another seed or system message; presets will not change it."""
        conversation = replace(self.conversation, **values)
        return replace(self, conversation=conversation, fixed=self.fixed | values.keys())

    def with_preset(self, name: str) -> Chat:
        """Return a copy with a preset above its other presets, below all typed values.

        Raises UsageError for a preset with an option that cannot change in a running chat, ConfigError for a
        missing or invalid preset.
        """
        *transcript, (origin, flags), above = self.layers
        names = [*(other for other in self.settings["preset"] if other != name), name]
        chat = replace(self, layers=(*transcript, (origin, {**flags, "preset": names}), above))
        before, after = self.settings, chat.settings
        changed = {key for key in after if after[key] != before[key]}
        changed -= {key for key in changed if not after.is_given(key)}  # switched off by another key
        if fixed := sorted(changed - CHANGEABLE.keys() - {*_OF_CONVERSATION, "preset"}):
            raise UsageError(
                f"The preset {name} sets {after.name(fixed[0])}, which cannot change in a running chat.",
                hint=f"Start a chat with it: gencli chat `preset` = {name}" if fixed[0] in _OPTIONS else "",
            )
        values = {key: after[key] for key in _OF_CONVERSATION if key in changed - self.fixed}
        return replace(chat, conversation=replace(self.conversation, **values))._checked()

    def with_value(self, key: str, value: Any) -> Chat:
        """Return a copy with an option's value; None removes those of flag and /set. Raises UsageError."""
        if value is not None:
            return self._set({key: value})
        without = [
            (name, {other: typed[other] for other in typed if other != key}) for name, typed in self.layers
        ]
        return replace(self, layers=tuple(without))._checked()

    def with_schema(self, text: str) -> Chat:
        """Return a copy whose answers follow a schema; "" removes it. Raises UsageError, ConfigError."""
        return self._set({**FREE, "json_schema": text})

    def with_typed(self, typed: Mapping[str, Any], origin: str) -> Chat:
        """Return a copy with a transcript's settings, instead of an earlier one's, below flags and /set."""
        layers: tuple[_Typed, ...] = ((origin, dict(typed)), *self.layers[-2:])
        return replace(self, layers=layers, fixed=frozenset(_OF_CONVERSATION))._checked()

    def _set(self, changed: Mapping[str, Any]) -> Chat:
        *below, (origin, values) = self.layers
        return replace(self, layers=(*below, (origin, {**values, **changed})))._checked()

    def _checked(self) -> Chat:
        make_job(self.settings)
        return self


def open_chat(flags: Mapping[str, Any]) -> Chat:
    """Return a new chat with these flags. Raises UsageError."""
    layers: tuple[_Typed, ...] = ((FLAG, dict(flags)), ("/set", {}))
    chat = Chat(Conversation(0), layers)
    job, system = chat.job, chat.settings["system"]
    if job.n > 1:
        name = chat.settings.name("n")
        raise UsageError(f"{name} is {job.n}, but a turn of a chat has one answer.", hint="Leave it out.")
    if chat.settings["template"] is not None:
        name = chat.settings.name("template")
        raise UsageError(f"{name} renders the prompt of a run, but a chat has turns.", hint="Leave it out.")
    if system == "":
        raise UsageError("`system` is empty.", hint="Leave it out.")
    return replace(chat, conversation=Conversation(job.seed, system))


_FORMAT = "gencli chat 1"
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ChatTranscript:
    """The content of a file: model, conversation, settings as typed, and presets."""

    model: str
    conversation: Conversation
    typed: dict[str, Any]
    presets: tuple[str, ...] = ()


def to_document(chat: Chat) -> dict[str, Any]:
    """Return the document. Its `turn` is the index of the next turn, on which the turn's draws depend."""
    conversation, structure = chat.conversation, chat.job.structure
    is_typed = any(kind in values for _, values in chat.layers for kind in KINDS)
    schema = {}
    if is_typed and (structure is None or structure.kind == "json_schema"):
        # The schema itself, not the name of its file; null for free answers.
        schema = {"schema": structure.plan.schema if structure else None}
    messages: list[dict[str, Any]] = []
    if conversation.system is not None:
        messages.append({"role": "system", "content": conversation.system})
    for turn in conversation.turns:
        messages.append({"role": "user", "content": turn.user})
        if turn.reason:
            answer = {"role": "assistant", "content": turn.answer, "finish_reason": turn.reason}
            messages.append({**answer, "attempt": turn.attempt} if turn.attempt else answer)
    return {
        "format": _FORMAT,
        "model": chat.settings["model"],
        "preset": list(chat.settings["preset"]),
        "seed": conversation.seed,
        "turn": len(conversation.turns),
        "settings": {"raw": True, **chat.typed} if chat.settings["raw"] else chat.typed,
        **schema,
        "messages": messages,
    }


def save(chat: Chat, path: Path) -> None:
    """Write the document. Raises UsageError if the file cannot be written."""
    text = json.dumps(to_document(chat), indent=2, ensure_ascii=False) + "\n"
    try:
        with replaced(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}.") from error


def load(path: Path) -> ChatTranscript:
    """Read a document. Raises UsageError for an unreadable file, ConfigError if it is not a transcript."""
    try:
        document = json.loads(read_file(path, _MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path}: is not a transcript: it is nested too deep.") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ConfigError(f"{path}: is not a transcript: its format is not {_FORMAT!r}.")
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: is a damaged transcript: {type(error).__name__}: {error}.") from None


def restore(chat: Chat, transcript: ChatTranscript, origin: str) -> Chat:
    """Return the chat with the transcript's conversation and settings; the model is unchanged.

    Raises UsageError if one of them is raw and the other is not, or for settings that conflict.
    """
    typed = dict(transcript.typed)
    if bool(typed.pop("raw", False)) != chat.settings["raw"]:
        raise UsageError("Either the chat or the transcript is `raw`, but not both.")
    return chat.with_typed(typed, origin).with_conversation(transcript.conversation)


def _read(document: dict[str, Any]) -> ChatTranscript:
    messages, system = list(document["messages"]), None
    if messages and messages[0]["role"] == "system":
        system = str(messages.pop(0)["content"])
    roles = [message["role"] for message in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2):
        raise ValueError("the roles do not alternate")
    turns = tuple(
        ChatTurn(str(a["content"]), str(b["content"]), str(b["finish_reason"]), int(b.get("attempt", 0)))
        for a, b in zip(messages[::2], messages[1::2], strict=True)
    )
    conversation = Conversation(int(document["seed"]), system, turns)
    presets = tuple(map(str, document.get("preset", ())))
    for key, value in document["settings"].items():
        if key == "raw" and value is True:
            continue
        if (entry := CHANGEABLE.get(key)) is None:
            raise ValueError(f"a chat has no setting {key!r}")
        items = value if entry.many and isinstance(value, list) else [value]
        kind = bool if entry.type is bool else str
        if (entry.many and items is not value) or not all(isinstance(item, kind) for item in items):
            raise ValueError(f"the setting {key} is {value!r}")
    typed = dict(document["settings"])
    if "schema" in document:  # the schema itself, so that a transcript never names a file
        if not isinstance(schema := document["schema"], dict | bool | None):
            raise TypeError(f"the schema is {schema!r}")
        typed |= {**FREE, "json_schema": "" if schema is None else json.dumps(schema)}
    return ChatTranscript(str(document["model"]), conversation, typed, presets)
