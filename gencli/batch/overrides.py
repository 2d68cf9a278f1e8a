"""Options set by single rows, read by the rules of presets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from gencli.batch.formats.base import Cell, RecordFault
from gencli.batch.formats.jsonl import parse_json
from gencli.batch.records import ColumnError
from gencli.config.jobs import REQUEST_KEYS, Jobs, request_layer
from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.config.presets.keys import KEYS, hint_of
from gencli.config.settings import Layer, Settings
from gencli.errors import UsageError
from gencli.structured.schema_inputs import named_file
from gencli.watermark_keys import NamedKey
from processors.registry import Registry, builtin_registry

__all__ = ["ROW", "refuse_key", "row_jobs", "row_layer", "typed"]

ROW = "row"  # origin of a row's values
_NAMED = "watermark_key"  # the option whose value is the name of a key
_NO_KEYS: Mapping[str, NamedKey] = MappingProxyType({})
_PER_RUN = {
    "Presets": "presets are read once, before the first row; write the values into the row",
    "Model": "one model serves all rows",
    "Output": "the result of all rows has one form",
}
_OF_PROMPTS = dict.fromkeys(("template", "vars"), "one template makes the prompts of all rows")


def refuse_key(key: str, *more: str) -> ColumnError:
    """Return the error for a key that a row cannot set; `more`: further names to suggest."""
    entry = next((entry for entry in OPTIONS if entry.key == key), None)
    if entry:
        reason = _OF_PROMPTS.get(key) or _PER_RUN.get(entry.section) or entry.flag_only
        return ColumnError(f"{key} is set for the whole run, not by a row: {reason}.")
    if key in builtin_registry().names():
        return ColumnError(f"There is no option {key!r}. It is a stage: write it under stages.")
    spelled = {name: repr(name) for name in (*REQUEST_KEYS, *more)}
    return ColumnError(
        f"There is no option {key!r}. {meant_option(key, spelled)}",
        hint="Columns that are data need `template`, `prompt_column` or `keep_input`.",
    )


def typed(key: str, value: Any) -> Any:
    """Return the value of an option; a table's cell is read as JSON unless the option takes text."""
    if not isinstance(value, Cell):
        return value
    hint = hint_of(KEYS[key]) if key in KEYS else None
    is_text = hint is not None and (hint is str or KEYS[key].type is str) and not value.startswith("[")
    if is_text or (key in KEYS and KEYS[key].choices):
        return str(value)
    try:
        return parse_json(value.lower() if value in ("True", "False", "TRUE", "FALSE") else value)
    except RecordFault:
        return str(value)


def _inline(key: str, value: Any) -> Any:
    """Return the value of a key. Raises UsageError if it names a file, because data must not read files."""
    if key == "json_schema" and isinstance(value, Mapping | bool):
        return json.dumps(value)
    if named_file(key, str(value)) is not None:
        raise UsageError(
            f"{key} names a file, which a row cannot read.",
            hint="Write it into the row itself, or set it for the whole run.",
        )
    return value


def _named_key(value: Any, keys: Mapping[str, NamedKey]) -> NamedKey:
    """Return the key of this name. Raises UsageError, without the value, which might be a secret key."""
    if isinstance(value, str) and value in keys:
        return keys[value]
    if keys:
        raise UsageError(f"{_NAMED} names no key of this batch, whose keys are {', '.join(keys)}.")
    raise UsageError(
        f"{_NAMED} names a file, which a row cannot read.",
        hint="Add `named_key` = NAME=FILE, and let the row have the name.",
    )


def row_layer(
    options: Mapping[str, Any], registry: Registry, keys: Mapping[str, NamedKey] = _NO_KEYS
) -> Layer:
    """Return the options of a row as a layer of settings. Raises UsageError for the first invalid one.

    `keys`: watermark keys that a row may select by name.
    """
    for key in options:
        if key not in REQUEST_KEYS:
            raise refuse_key(key)
    values = {key: _inline(key, value) for key, value in options.items() if key != _NAMED}
    layer = request_layer(values, registry, ROW)
    if _NAMED not in options:
        return layer
    found = {**layer.values, _NAMED: _named_key(options[_NAMED], keys)}
    return replace(layer, values=found, places={**layer.places, _NAMED: _NAMED})


def row_jobs(settings: Settings, keys: Mapping[str, NamedKey] = _NO_KEYS) -> Jobs:
    """Return the jobs of a batch's rows; `keys`: watermark keys that rows may select by name."""
    return Jobs(settings, partial(row_layer, keys=keys))
