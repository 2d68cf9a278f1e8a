"""The chain of a run, put together from its settings, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gencli.errors import UsageError
from gencli.options import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES
from gencli.settings import Settings
from processors.chain import Chain, parse_fields
from processors.errors import ParamError
from processors.registry import builtin_registry

__all__ = ["Assembly", "Assigned", "assemble"]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A stage's field that was given a value: by which layer, and in which words."""

    stage: str
    field: str
    value: Any
    origin: str
    said: str


@dataclass(frozen=True, slots=True)
class Assembly:
    """The chain and where its values came from."""

    chain: Chain
    values: tuple[Assigned, ...] = ()

    def of_stage(self, name: str) -> tuple[Assigned, ...]:
        """What was said about a stage."""
        return tuple(entry for entry in self.values if entry.stage == name)


def assemble(settings: Settings) -> Assembly:
    """The chain that the settings describe; a field set twice is an error that names both places."""
    registry = builtin_registry()
    values = [*_from_options(settings), *_from_stages(settings)]
    values += _from_penalty_options(settings, values)
    fields: dict[str, dict[str, Any]] = {}
    said: dict[tuple[str, str], str] = {}
    for entry in values:
        place = (entry.stage, entry.field)
        if place in said:
            raise UsageError(
                f"{said[place]} and {entry.said} both set {entry.field} of the stage {entry.stage}.",
                hint="Leave one of them out.",
            )
        said[place] = entry.said
        fields.setdefault(entry.stage, {})[entry.field] = entry.value
        _check_alone(entry)
    for text in settings["stage"]:  # a bare name puts the stage in with its defaults
        fields.setdefault(parse_fields(text)[0], {})
    order = {name: place for place, name in enumerate(registry.names())}
    values.sort(key=lambda entry: order[entry.stage])
    return Assembly(Chain.of(fields), tuple(values))


def _check_alone(entry: Assigned) -> None:
    """Let a value that its stage refuses be named as it was typed."""
    try:
        builtin_registry().spec(entry.stage).params.from_mapping({entry.field: entry.value})
    except ParamError as error:
        raise UsageError(f"{entry.said}: {error}") from None


def _from_options(settings: Settings) -> Iterator[Assigned]:
    for entry in OPTIONS:
        if entry.stage and settings.is_given(entry.key):
            value = settings[entry.key]
            yield Assigned(entry.stage, entry.field, value, settings.origin(entry.key), entry.flag)


def _from_stages(settings: Settings) -> Iterator[Assigned]:
    for text in settings["stage"]:
        name, fields = parse_fields(text)
        said = f"--stage {text!r}"
        if name == "tail":
            raise UsageError(f"{said}: the stage tail is set from the model's tokenizer.")
        unknown = fields.keys() - set(builtin_registry().spec(name).params.__dataclass_fields__)
        if unknown:
            Chain.of({name: fields})  # raises, and names the nearest field
        for field, value in fields.items():
            yield Assigned(name, field, value, settings.origin("stage"), said)


def _from_penalty_options(settings: Settings, values: list[Assigned]) -> Iterator[Assigned]:
    """--penalty-scope and --penalty-window, once for each penalty that is on."""
    given = [entry for entry in PENALTY_OPTIONS if settings.is_given(entry.key)]
    if not given:
        return
    active = _active_penalties(values)
    if not active:
        raise UsageError(
            f"{given[0].flag} is given, but no penalty is on.",
            hint="Add --repetition-penalty, --frequency-penalty or --presence-penalty, or leave it out.",
        )
    for entry in given:
        for stage in active:
            value = settings[entry.key]
            yield Assigned(stage, entry.field, value, settings.origin(entry.key), entry.flag)


def _active_penalties(values: list[Assigned]) -> list[str]:
    strengths = {entry.stage: entry.value for entry in values if entry.field == "penalty"}
    specs = ((name, builtin_registry().spec(name).params) for name in PENALTY_STAGES)
    return [
        name
        for name, params in specs
        if strengths.get(name, params.default("penalty")) != params.default("penalty")
    ]
