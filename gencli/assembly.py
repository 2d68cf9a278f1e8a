"""The chain of a run, put together from its settings, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gencli.errors import UsageError
from gencli.options import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES
from gencli.settings import Settings
from processors.chain import Chain, parse_fields
from processors.errors import ChainError, ParamError
from processors.order import check_order, reorder, temperature_last
from processors.registry import Registry, builtin_registry

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


def assemble(settings: Settings, registry: Registry | None = None) -> Assembly:
    """The chain that the settings describe; a field set twice is an error that names both places."""
    registry = registry or builtin_registry()
    values = [*_from_options(settings, registry), *_from_stages(settings, registry)]
    values += _from_penalty_options(settings, values)
    # A bare name, as in --stage top_k, puts a stage in with its defaults.
    fields: dict[str, dict[str, Any]] = {parse_fields(text, registry)[0]: {} for text in settings["stage"]}
    said: dict[tuple[str, str], str] = {}
    for entry in values:
        before = said.setdefault((entry.stage, entry.field), entry.said)
        if entry.field in fields.setdefault(entry.stage, {}):
            raise UsageError(
                f"{before} and {entry.said} both set {entry.field} of the stage {entry.stage}.",
                hint="Leave one of them out.",
            )
        fields[entry.stage][entry.field] = entry.value
    return Assembly(_arranged(Chain.of(fields, registry), settings, registry), tuple(values))


def _arranged(chain: Chain, settings: Settings, registry: Registry) -> Chain:
    """The chain in the order that was asked for; UsageError for an order that is unsound."""
    if settings["chain"] and settings["temperature_last"]:
        raise UsageError("--chain and --temperature-last both say where the temperature goes.")
    if settings["temperature_last"]:
        return temperature_last(chain, registry)
    if settings["chain"]:
        try:
            chain = reorder(chain, settings["chain"], registry)
            check_order(chain, registry)
        except ChainError as error:
            raise UsageError(f"--chain: {error}") from None
    return chain


def _check(stage: str, fields: Mapping[str, Any], said: str, registry: Registry) -> None:
    """Let a value that the stage refuses be named as it was typed."""
    try:
        registry.spec(stage).params.from_mapping(fields, stage=stage)
    except ParamError as error:
        raise UsageError(f"{said}: {str(error).removeprefix(f'{stage}: ')}") from None


def _from_options(settings: Settings, registry: Registry) -> Iterator[Assigned]:
    for entry in OPTIONS:
        if entry.stage and settings.is_given(entry.key):
            value = settings[entry.key]
            _check(entry.stage, {entry.field: value}, entry.flag, registry)
            yield Assigned(entry.stage, entry.field, value, settings.origin(entry.key), entry.flag)


def _from_stages(settings: Settings, registry: Registry) -> Iterator[Assigned]:
    for text in settings["stage"]:
        name, fields = parse_fields(text, registry)
        said = f"--stage {text!r}"
        if name == "tail":
            raise UsageError(f"{said}: the stage tail is set from the model's tokenizer.")
        _check(name, fields, said, registry)
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
    return [
        name
        for name in PENALTY_STAGES
        if name in strengths and strengths[name] != builtin_registry().spec(name).params.default("penalty")
    ]
