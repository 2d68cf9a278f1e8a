"""The options of one request in Python: names, bounds and messages from the table of options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gencli.config.jobs import REQUEST_KEYS, request_layer
from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.config.presets.keys import checked
from gencli.config.settings import Layer
from gencli.errors import UsageError
from processors.chain import Chain
from processors.conditions.picks import check_conditions
from processors.errors import ParamError, UnknownStage
from processors.registry import Registry, builtin_registry

__all__ = ["ORIGIN", "PARAM_KEYS", "SamplingParams", "params_layer"]

ORIGIN = "SamplingParams"  # origin of values given in Python
_TRACE = "trace"  # here the number of ids in lists, because no request names a file
PARAM_KEYS = REQUEST_KEYS - {"chat", "raw"} | {_TRACE}  # the called method decides about the template


class SamplingParams(Mapping[str, Any]):
    """How texts are generated. Keywords are the options of `gencli run` that belong to a request.

    `chain` may be a text such as "repetition=1.2 | temperature=0.8 | min_p=0.05", which gives the stages,
    their values and their order. `json_schema` may be a mapping, or a class that pydantic knows a schema of.
    `trace` explains each token; it is the number of ids in each list of a record (1 to 100).
    Printing shows the given values. Raises UsageError for a keyword that does not exist, with the nearest
    one, and for a value out of bounds. An unknown stage raises UnknownStage when an LLM is given the value,
    because the LLM may have the stage from a plug-in.
    """

    def __init__(self, **values: Any) -> None:
        self._values = {key: _plain(key, value) for key, value in values.items() if value is not None}
        for key in self._values:
            if key not in PARAM_KEYS:
                raise UsageError(_unknown(key))
        self._check_builtin()

    def _check_builtin(self) -> None:
        """Check all values but stages of plug-ins, which only the registry of an LLM knows."""
        values, registry = dict(self._values), builtin_registry()
        chain, stages = values.pop("chain", None), values.pop("stages", {})
        known = {name: value for name, value in stages.items() if name in registry}
        params_layer({**values, "stages": known}, registry)
        if isinstance(chain, str):
            with suppress(UnknownStage):
                check_conditions(Chain.parse(chain, registry), registry)

    def replaced(self, **values: Any) -> SamplingParams:
        """Return a copy with these values changed; None removes a value."""
        return SamplingParams(**{**self._values, **values})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SamplingParams({', '.join(f'{key}={value!r}' for key, value in self._values.items())})"


def params_layer(values: Mapping[str, Any], registry: Registry, origin: str = ORIGIN) -> Layer:
    """Return the values as a layer of settings; a chain as text may name any stage of the registry.

    Raises UsageError for the first wrong value, or a ProcessorsError for a wrong chain.
    """
    chain, traced = values.get("chain"), values.get(_TRACE)
    if isinstance(chain, str):
        parsed, entries = Chain.parse(chain, registry), dict[str, list[dict[str, Any]]]()
        check_conditions(parsed, registry)
        for name, params in parsed:
            given = params.to_mapping() or {params.main(): getattr(params, params.main())}
            entries.setdefault(name, []).append(given)
        values = {**values, "chain": [_stage(name, found) for name, found in entries.items()]}
    layer = request_layer({key: value for key, value in values.items() if key != _TRACE}, registry, origin)
    return layer if traced is None else _with_trace(layer, traced)


def _with_trace(layer: Layer, count: Any) -> Layer:
    """Return the layer with a trace whose lists have `count` ids. Raises UsageError for an invalid count."""
    try:
        own = dict.fromkeys((_TRACE, "trace_top"), checked("trace_top", count))
    except ParamError as error:
        raise UsageError(f"{_TRACE} {str(error).removeprefix('trace_top ')}") from None
    places = dict.fromkeys(own, _TRACE)
    return replace(layer, values={**layer.values, **own}, places={**layer.places, **places})


def _unknown(key: str) -> str:
    entry = next((entry for entry in OPTIONS if entry.key == key), None)
    if entry is not None:
        if entry.section == "Model":
            return f"{key} is an argument of LLM, not of SamplingParams."
        return f"SamplingParams has no {key!r}: it is not about one request."
    if key in builtin_registry().names():
        return f"SamplingParams has no {key!r}. It is a stage: write it in stages or chain."
    near = meant_option(key, {name: name for name in PARAM_KEYS})
    return f"SamplingParams has no {key!r}. {near}".strip()


def _plain(key: str, value: Any) -> Any:
    """Return the value as plain JSON."""
    if key == "json_schema" and not isinstance(value, str):
        return json.dumps(value if isinstance(value, Mapping | bool) else _schema_of(value))
    if key == "stages" and not isinstance(value, Mapping):
        raise UsageError(f"stages is {value!r}, but has to map names of stages to their values.")
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value


def _stage(name: str, entries: list[dict[str, Any]]) -> Any:
    """Return a stage as an item of a preset's `chain`."""
    if entries[1:]:
        return {name: entries}
    return {name: entries[0]} if entries[0] else name


def _schema_of(kind: Any) -> Any:
    from gencli.structured.schema_inputs import model_of

    return model_of(kind).schema()
