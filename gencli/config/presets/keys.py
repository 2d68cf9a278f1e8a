"""The keys of presets, from the table of options and the declarations of stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.config.options.run import OPTIONS, Option, option
from gencli.config.peers import meant_option
from gencli.config.watermark import MARKS
from processors.catalog import StageSpec
from processors.conversion import convert
from processors.errors import ParamError
from processors.params import describe
from processors.registry import Registry, builtin_registry

__all__ = ["KEYS", "STRUCTURE", "checked", "hint_of", "stage_specs", "unknown_key"]

_FLAG_ONLY = {entry.key: entry.flag_only for entry in OPTIONS if entry.flag_only}
KEYS: dict[str, Option] = {
    entry.key: entry for entry in OPTIONS if entry.key not in _FLAG_ONLY and entry.key != "chain"
}
STRUCTURE = {
    "extends": "Presets that this one builds on, one or a list: names, or files relative to this one. "
    "Later ones win over earlier ones, and this file over all.",
    "chain": "The order of the stages as a list: a name (a stage, a phase, or penalties for all three) "
    "gives a place, a name with a value gives both, as in `- top_k: 40` or `- top_k: {k: 40, ties: keep}`.",
    "notes": "What is said on stderr when the preset is used, a text or a list of texts.",
    "stages": "Values of stages by name: a main value, a mapping of fields, or a list of such mappings with "
    "conditions (when). They keep the default order.",
    "fields": "Stages inside values of a JSON document, by JSON pointer: greedy, or a mapping as in stages.",
}


def checked(key: str, value: Any) -> Any:
    """Return the checked value of an option from YAML or JSON. Raises ParamError with the position."""
    entry = option(key)
    is_one = entry.many and not isinstance(value, list | tuple | Mapping)
    value = [value] if is_one and value is not None else value
    try:
        if entry.stage:
            found = builtin_registry().spec(entry.stage).params.from_mapping({entry.field: value})
            return getattr(found, entry.field)
        return convert(value, hint_of(entry), entry.bounds)
    except ParamError as error:
        text = f"{key} {str(error).removeprefix(f'{entry.field} ')}"
        tail = f" {entry.hint}" if entry.hint and entry.hint not in text else ""
        raise ParamError(text + tail, error.path) from None


def hint_of(entry: Option) -> Any:
    """Return the type of an option's value as an annotation."""
    if entry.stage:
        return describe(builtin_registry().spec(entry.stage).params)[entry.field]["type"]
    return tuple[entry.type, ...] if entry.many else entry.type  # type: ignore[name-defined]


def stage_specs(registry: Registry | None = None) -> tuple[StageSpec, ...]:
    """Return the stages that a preset may name, in default order, without those set by other values."""
    registry = registry or builtin_registry()
    return tuple(registry.spec(name) for name in registry.names() if name not in {"tail", *MARKS})


def unknown_key(key: str) -> str:
    """Return the message for an unknown key."""
    if key in _FLAG_ONLY:
        return f"{key} is a flag only, no key of a preset: {_FLAG_ONLY[key]}."
    if key in (spec.name for spec in stage_specs()):
        return f"There is no key {key!r}. It is a stage: write it under stages: or chain:."
    spelled = {name: repr(name) for name in (*KEYS, *STRUCTURE)}
    return f"There is no key {key!r}. {meant_option(key, spelled) or 'docs/presets.md lists all.'}"
