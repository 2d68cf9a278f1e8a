"""A chat: the conversation and the settings that hold for its next answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gencli.chat.conversation import Conversation
from gencli.errors import UsageError
from gencli.job import Job, make_job
from gencli.options import OPTIONS, Option
from gencli.settings import FLAG, Settings, resolve
from gencli.sources import gather

__all__ = ["CHAT_OPTIONS", "Chat", "changeable", "open_chat"]

_Typed = tuple[str, Mapping[str, Any]]  # where it was typed, and what
_FOREIGN = ("file", "chat", "n", "max_batch", "format", "output", "stream", "stats", "show_chain")
CHAT_OPTIONS: tuple[Option, ...] = tuple(entry for entry in OPTIONS if entry.key not in _FOREIGN)
# The seed has its own command; code and files are named on the command line only, never by a transcript.
_FIXED = ("seed", "plugin", "preset")
_SECTIONS = ("Chain", "Draw", "Limits and stops")


def changeable() -> Iterator[Option]:
    """The options that /set knows and a transcript records."""
    for entry in CHAT_OPTIONS:
        if entry.section in _SECTIONS and entry.key not in _FIXED:
            yield entry


@dataclass(frozen=True)  # no slots: what follows from the layers is worked out once
class Chat:
    """`layers` hold what was typed, as for a run; the last of them is what /set said."""

    conversation: Conversation
    layers: tuple[_Typed, ...]

    @cached_property
    def settings(self) -> Settings:
        """Every option's value and where it came from."""
        is_raw = any(values.get("raw") for _, values in self.layers)
        (_, flags), *later = self.layers
        found = gather(flags, os.environ)
        first = ("chat", {} if is_raw else {"chat": True})
        return resolve(first, *found.layers, *later, registry=found.registry)

    @cached_property
    def job(self) -> Job:
        """What holds for the next answer; UsageError for settings that do not go together."""
        return make_job(self.settings)

    @property
    def typed(self) -> dict[str, Any]:
        """What was typed for the options that a transcript records."""
        keys = {entry.key for entry in changeable()}
        return {key: value for _, values in self.layers for key, value in values.items() if key in keys}

    def with_conversation(self, conversation: Conversation) -> Chat:
        """The same settings for another conversation."""
        return replace(self, conversation=conversation)

    def with_value(self, key: str, value: Any) -> Chat:
        """With an option's value as it was typed; None goes back to the default. Raises UsageError."""
        said, values = self.layers[-1]
        layers = (*self.layers[:-1], (said, {**values, key: value}))
        if value is None:
            layers = tuple((name, _without(found, key)) for name, found in self.layers)
        return replace(self, layers=layers)._checked()

    def with_typed(self, typed: Mapping[str, Any], origin: str) -> Chat:
        """With the settings of a transcript in the place of those that are here."""
        keys = {entry.key for entry in changeable()}
        flags = {key: value for key, value in self.layers[0][1].items() if key not in keys}
        return replace(self, layers=((FLAG, flags), (origin, dict(typed)), ("/set", {})))._checked()

    def _checked(self) -> Chat:
        make_job(self.settings)
        return self


def open_chat(given: Mapping[str, Any]) -> Chat:
    """A chat with the flags that were given; UsageError for flags that are no good."""
    layers: tuple[_Typed, ...] = ((FLAG, dict(given)), ("/set", {}))
    chat = Chat(Conversation(0), layers)
    job, system = chat.job, chat.settings["system"]
    if system == "":
        raise UsageError("--system is empty.", hint="Leave it out.")
    return replace(chat, conversation=Conversation(job.seed, system))


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}
