"""Fields of another system as checked values of stages and options, each with the field that gave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gencli.config.options.run import PENALTY_OPTIONS, option
from gencli.config.options.stages import PENALTY_STAGES
from gencli.config.peers import key_of, meant_option
from gencli.config.presets.keys import KEYS, checked
from gencli.imports.peers import NO_SETTINGS, Peer
from gencli.imports.readers import COMMON, NotTaken
from gencli.server.wire.errors import ApiError
from gencli.server.wire.fields import read_field
from gencli.server.wire.hints import is_hint
from gencli.server.wire.vendors import RENAMED
from processors.errors import ParamError, UnknownStage
from processors.registry import Registry

__all__ = ["Collected", "Place", "collect"]

_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops")
_SETTINGS = {key for key, entry in KEYS.items() if entry.section in _SECTIONS} - {
    "logprobs",
    "prompt_logprobs",
}
# Values of fields of others, in small letters, that change nothing there.
_UNSET = {
    "best_of": "1",
    "max_length": "20",
    "num_beam_groups": "1",
    "skip_special_tokens": "true",
    "spaces_between_special_tokens": "true",
    "use_cache": "true",
}
_MOST_NOTES = 100
_LONGEST = 60  # characters of a name in a note

Place = tuple[str, str]  # a stage and its field


@dataclass(slots=True)
class Collected:
    """Values of collected fields: of stages, of options, and hints that only mean something together.

    `said`: for each value of a stage the name of the field that gave it. `notes`: fields not taken over.
    """

    stages: dict[Place, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    hints: dict[str, Any] = field(default_factory=dict)
    said: dict[Place, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, name: str, reason: str) -> None:
        """Record that a field was not taken over, and why; the number of notes is bounded."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(f"{_short(name)} is not taken over: {reason}.")
        elif len(self.notes) == _MOST_NOTES:
            self.notes.append("More fields are not taken over.")

    def drop(self, place: Place, reason: str) -> None:
        """Remove a value, with a note that names its field unless other values of the field remain."""
        del self.stages[place]
        name = self.said.pop(place)
        if name not in self.said.values():
            self.note(name, reason)


def collect(peer: Peer, fields: Iterable[tuple[str, Any]], registry: Registry) -> Collected:
    """Return the values of all fields, and a note for each that is not taken over."""
    found = Collected()
    for name, value in fields:
        try:
            for key, item in _read(peer, name, value).items():
                _put(found, key, item, name, registry)
        except NotTaken as error:
            if not _asks_nothing(name, value):
                found.note(name, str(error))
    return found


def _asks_nothing(name: str, value: Any) -> bool:
    """Return whether a field that is not taken over has the value that it has without being set."""
    return value in (None, False, "", (), [], {}) or str(value).casefold() == _UNSET.get(name)


def _read(peer: Peer, name: str, value: Any) -> dict[str, Any]:
    key = RENAMED.get(name) or key_of(name) or name
    for readers, by in ((peer.readers, name), (peer.readers, key), (COMMON, name), (COMMON, key)):
        if by is name and name not in readers and (reason := _no_setting(peer, name)):
            raise NotTaken(reason)
        found = readers[by](value) if by in readers else None
        if found is not None:
            return found
    if key in _SETTINGS and name not in KEYS:
        return {key: _one(value)}
    try:
        return {name: _one(value) for name, value in read_field(name, value).items()}
    except ApiError as error:
        if error.code == "unknown_field":
            hint = meant_option(name, {key: f"`{key}`" for key in _SETTINGS})
            raise NotTaken(hint.rstrip(".") or "there is nothing of the name") from None
        raise NotTaken(error.message.rstrip(".")) from None


def _no_setting(peer: Peer, name: str) -> str:
    other = "it changes no text" if is_hint(name) and name not in KEYS and not key_of(name) else ""
    return peer.dropped.get(name) or NO_SETTINGS.get(name) or other


def _one(value: Any) -> Any:
    """Return a command line's value in plain form: numbers come as text, repeatable flags as tuples."""
    if isinstance(value, tuple):
        return list(value)
    for kind in (int, float) if isinstance(value, str) and len(value) <= 40 else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _put(found: Collected, key: str, value: Any, name: str, registry: Registry) -> None:
    if key.startswith("?"):
        found.hints[key.removeprefix("?")] = value
        return
    stage, dot, inner = key.partition(".")
    if dot:
        places: list[Place] = [(stage, inner)]
    elif key not in _SETTINGS:
        raise NotTaken("it is no setting of how tokens are chosen")
    elif option(key) in PENALTY_OPTIONS:
        places = [(name, option(key).field) for name in PENALTY_STAGES]
    else:
        places = [(option(key).stage, option(key).field)] if option(key).stage else []
    try:
        if not places:
            found.options[key] = _checked_option(key, value)
        for place in places:
            found.stages[place] = _checked_field(place, value, registry)
            found.said[place] = name
    except ParamError as error:
        raise NotTaken(str(error).rstrip(".")) from None


def _checked_option(key: str, value: Any) -> Any:
    return checked(key, str(value) if key in ("stop", "ban") and isinstance(value, int | float) else value)


def _checked_field(place: Place, value: Any, registry: Registry) -> Any:
    stage, inner = place
    try:
        params = registry.spec(stage).params
    except UnknownStage:
        raise NotTaken(f"there is no stage {stage}") from None
    if isinstance(value, float) and value.is_integer() and isinstance(params.default(inner), int):
        value = int(value)  # JavaScript writes 40.0 for 40
    return getattr(params.from_mapping({inner: value}, stage=stage), inner)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
