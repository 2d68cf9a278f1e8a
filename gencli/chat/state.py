"""A chat: the conversation and the settings that hold for its next answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gencli.chat.conversation import Conversation
from gencli.config.job import Job, make_job
from gencli.config.layers import gather
from gencli.config.options.run import OPTIONS, Option, option
from gencli.config.options.search import SEARCH
from gencli.config.options.structure import KINDS
from gencli.config.settings import FLAG, Settings, resolve
from gencli.errors import UsageError

__all__ = ["CHAT_OPTIONS", "FREE", "Chat", "changeable", "open_chat"]

FREE = {kind: "" if option(kind).default is None else option(kind).default for kind in KINDS}
_Typed = tuple[str, Mapping[str, Any]]  # where it was typed, and what
_FOREIGN = {
    *("file", "chat", "n", "max_batch", "format", "output", "stream", "stats", "show_chain", "log"),
    *("template", "vars", "show_prompt"),
    *("partial", "retries", "parsed", "select"),  # a turn is shown while it is made,
    *(entry.key for entry in SEARCH),  # which neither a search nor a choice among samples allows
}
CHAT_OPTIONS: tuple[Option, ...] = tuple(entry for entry in OPTIONS if entry.key not in _FOREIGN)
# The seed has its own command; models, code and files are named on the command line only, never by a
# transcript.
_FIXED = ("seed", "plugin", "preset", "contrast", *KINDS)
_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops", "Structure")


def changeable() -> Iterator[Option]:
    """The options that /set knows and a transcript records."""
    for entry in CHAT_OPTIONS:
        if entry.section in _SECTIONS and entry.key not in _FIXED:
            yield entry


_CHANGEABLE = frozenset(entry.key for entry in changeable())
_OPTIONS = frozenset(entry.key for entry in CHAT_OPTIONS)
_OF_CONVERSATION = ("seed", "system")


@dataclass(frozen=True)  # no slots: what follows from the layers is worked out once
class Chat:
    """`layers` hold what was typed: a transcript's settings if one was loaded, flags, and what /set said.

    `own` names what of seed and system message the chat was told itself, so that no preset changes it.
    """

    conversation: Conversation
    layers: tuple[_Typed, ...]
    own: frozenset[str] = frozenset()

    @cached_property
    def settings(self) -> Settings:
        """Every option's value and where it came from."""
        is_raw = any(values.get("raw") for _, values in self.layers)
        *transcript, (_, flags), above = self.layers
        found = gather(flags, os.environ)
        *below, typed = found.layers
        first = ("chat", {} if is_raw else {"chat": True})
        return resolve(first, *below, *transcript, typed, above, registry=found.registry)

    @cached_property
    def job(self) -> Job:
        """What holds for the next answer; UsageError for settings that do not go together."""
        return make_job(self.settings)

    @property
    def typed(self) -> dict[str, Any]:
        """What was typed for the options that a transcript records."""
        said = [item for _, values in self.layers for item in values.items()]
        return {key: value for key, value in said if key in _CHANGEABLE}

    @property
    def above_transcript(self) -> list[str]:
        """The names of settings that flags, /set or /schema give, which are stronger than a transcript's."""
        keys = [key for _, values in self.layers[-2:] for key in values]
        names = {key: option(key).flag.lstrip("-") for key in keys if key in _CHANGEABLE}
        return [*names.values(), *(["schema"] if set(KINDS) & set(keys) else [])]

    @property
    def is_structure_typed(self) -> bool:
        """Whether a flag or /schema said what answers have to be, or that they are free."""
        return any(kind in values for _, values in self.layers for kind in KINDS)

    def with_conversation(self, conversation: Conversation) -> Chat:
        """The same settings for another conversation."""
        return replace(self, conversation=conversation)

    def with_own(self, **told: Any) -> Chat:
        """With another seed or system message, whatever presets say."""
        return replace(self, conversation=replace(self.conversation, **told), own=self.own | told.keys())

    def with_preset(self, name: str) -> Chat:
        """With a preset above those that are here and below all that was typed.

        Raises UsageError for one that sets what a running chat cannot change, ConfigError for one that is
        not there or is faulty.
        """
        *transcript, (said, flags), above = self.layers
        names = [*(other for other in self.settings["preset"] if other != name), name]
        chat = replace(self, layers=(*transcript, (said, {**flags, "preset": names}), above))
        before, after = self.settings, chat.settings
        changed = {key for key in after if after[key] != before[key]}
        changed -= {key for key in changed if not after.is_given(key)}  # what another key switched off
        if fixed := sorted(changed - _CHANGEABLE - {*_OF_CONVERSATION, "preset"}):
            raise UsageError(
                f"The preset {name} sets {after.name(fixed[0])}, which cannot change in a running chat.",
                hint=f"Begin one with it: gencli chat --preset {name}" if fixed[0] in _OPTIONS else "",
            )
        told = {key: after[key] for key in _OF_CONVERSATION if key in changed - self.own}
        return replace(chat, conversation=replace(self.conversation, **told))._checked()

    def with_value(self, key: str, value: Any) -> Chat:
        """With an option's value as it was typed; None takes flag and /set away. Raises UsageError."""
        said, values = self.layers[-1]
        layers = (*self.layers[:-1], (said, {**values, key: value}))
        if value is None:
            layers = tuple((name, _without(found, key)) for name, found in self.layers)
        return replace(self, layers=layers)._checked()

    def with_schema(self, text: str) -> Chat:
        """With answers that are documents of this schema; an empty text lets them be free."""
        said, values = self.layers[-1]
        chosen = {**values, **FREE, "json_schema": text}
        return replace(self, layers=(*self.layers[:-1], (said, chosen)))._checked()

    def with_typed(self, typed: Mapping[str, Any], origin: str) -> Chat:
        """With the settings of a transcript, below flags and /set, in the place of another transcript's."""
        layers: tuple[_Typed, ...] = ((origin, dict(typed)), *self.layers[-2:])
        return replace(self, layers=layers, own=frozenset(_OF_CONVERSATION))._checked()

    def _checked(self) -> Chat:
        make_job(self.settings)
        return self


def open_chat(given: Mapping[str, Any]) -> Chat:
    """A chat with the flags that were given; UsageError for flags that are no good."""
    layers: tuple[_Typed, ...] = ((FLAG, dict(given)), ("/set", {}))
    chat = Chat(Conversation(0), layers)
    job, system = chat.job, chat.settings["system"]
    if job.n > 1:
        said = chat.settings.name("n")
        raise UsageError(f"{said} is {job.n}, and a chat has one answer to a turn.", hint="Leave it out.")
    if chat.settings["template"] is not None:
        said = chat.settings.name("template")
        raise UsageError(f"{said} makes the prompt of a run, and a chat has turns.", hint="Leave it out.")
    if system == "":
        raise UsageError("--system is empty.", hint="Leave it out.")
    return replace(chat, conversation=Conversation(job.seed, system))


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}
