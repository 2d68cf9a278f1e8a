"""`Chat`: a conversation and the settings of its next answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gencli.chat.conversation import Conversation
from gencli.config.chat_defaults import with_chat_draw
from gencli.config.environment import untraced
from gencli.config.job import Job, make_job
from gencli.config.layers import gather
from gencli.config.options.run import OPTIONS, Option, option
from gencli.config.options.search import SEARCH
from gencli.config.settings import FLAG, Settings, resolve
from gencli.errors import UsageError
from gencli.structured.output_spec import KINDS

__all__ = ["CHAT_OPTIONS", "FREE", "Chat", "changeable", "open_chat"]

FREE = {kind: "" if option(kind).default is None else option(kind).default for kind in KINDS}
_Typed = tuple[str, Mapping[str, Any]]  # origin, values as typed
_FOREIGN = {
    *("file", "chat", "n", "max_batch", "format", "output", "stream", "stats", "show_chain", "log"),
    *("template", "vars", "show_prompt", "token_ids", "trace", "trace_top", "keep_logits"),
    # A turn is shown while it is generated, so nothing may replace its text later.
    *("partial", "retries", "parsed", "select"),
    *(entry.key for entry in SEARCH),
}
CHAT_OPTIONS: tuple[Option, ...] = tuple(entry for entry in OPTIONS if entry.key not in _FOREIGN)
# The seed has its own command. Only the command line may name models, code and files; a transcript cannot.
_FIXED = ("seed", "plugin", "preset", "contrast", *KINDS)
_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops", "Structure")


def changeable() -> Iterator[Option]:
    """Yield the options that /set accepts and a transcript records."""
    for entry in CHAT_OPTIONS:
        if entry.section in _SECTIONS and entry.key not in _FIXED:
            yield entry


_CHANGEABLE = frozenset(entry.key for entry in changeable())
_OPTIONS = frozenset(entry.key for entry in CHAT_OPTIONS)
_OF_CONVERSATION = ("seed", "system")


@dataclass(frozen=True)  # no slots: cached properties
class Chat:
    """A conversation, and layers of typed values: of a loaded transcript, of flags, and of /set.

    `own`: "seed" or "system" if the user set it in the chat; presets then do not change it.
    """

    conversation: Conversation
    layers: tuple[_Typed, ...]
    own: frozenset[str] = frozenset()

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
        return {key: value for key, value in items if key in _CHANGEABLE}

    @property
    def above_transcript(self) -> list[str]:
        """The names of settings from flags, /set or /schema, which override a transcript's."""
        keys = [key for _, values in self.layers[-2:] for key in values]
        names = {key: option(key).flag.lstrip("-") for key in keys if key in _CHANGEABLE}
        return [*names.values(), *(["schema"] if set(KINDS) & set(keys) else [])]

    @property
    def is_structure_typed(self) -> bool:
        """Whether a flag or /schema sets or removes the structure of answers."""
        return any(kind in values for _, values in self.layers for kind in KINDS)

    def with_conversation(self, conversation: Conversation) -> Chat:
        """Return a copy with another conversation."""
        return replace(self, conversation=conversation)

    def with_own(self, **values: Any) -> Chat:
        """Return a copy with another seed or system message; presets will not change it."""
        return replace(self, conversation=replace(self.conversation, **values), own=self.own | values.keys())

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
        if fixed := sorted(changed - _CHANGEABLE - {*_OF_CONVERSATION, "preset"}):
            raise UsageError(
                f"The preset {name} sets {after.name(fixed[0])}, which cannot change in a running chat.",
                hint=f"Start a chat with it: gencli chat `preset` = {name}" if fixed[0] in _OPTIONS else "",
            )
        values = {key: after[key] for key in _OF_CONVERSATION if key in changed - self.own}
        return replace(chat, conversation=replace(self.conversation, **values))._checked()

    def with_value(self, key: str, value: Any) -> Chat:
        """Return a copy with an option's typed value; None removes the values of flag and /set.

        Raises UsageError.
        """
        origin, values = self.layers[-1]
        layers = (*self.layers[:-1], (origin, {**values, key: value}))
        if value is None:
            layers = tuple((name, _without(typed, key)) for name, typed in self.layers)
        return replace(self, layers=layers)._checked()

    def with_schema(self, text: str) -> Chat:
        """Return a copy whose answers follow a schema; "" removes the schema.

        Raises UsageError, ConfigError.
        """
        origin, values = self.layers[-1]
        changed = {**values, **FREE, "json_schema": text}
        return replace(self, layers=(*self.layers[:-1], (origin, changed)))._checked()

    def with_typed(self, typed: Mapping[str, Any], origin: str) -> Chat:
        """Return a copy with a transcript's settings, below flags and /set.

        They replace the settings of an earlier transcript.
        """
        layers: tuple[_Typed, ...] = ((origin, dict(typed)), *self.layers[-2:])
        return replace(self, layers=layers, own=frozenset(_OF_CONVERSATION))._checked()

    def _checked(self) -> Chat:
        make_job(self.settings)
        return self


def open_chat(given: Mapping[str, Any]) -> Chat:
    """Return a new chat with these flags. Raises UsageError."""
    layers: tuple[_Typed, ...] = ((FLAG, dict(given)), ("/set", {}))
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


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}
