"""Writes settings as the text of a preset that reproduces the run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import yaml

from gencli.config.job import Job
from gencli.config.options.run import PENALTY_OPTIONS
from gencli.config.presets.keys import KEYS
from gencli.config.presets.values import placed
from gencli.config.settings import COMPAT, Settings
from gencli.config.watermark import MARKS
from processors.params import Params

__all__ = ["needs", "preset_text", "scalar"]

_IN_STAGES = {entry.key for entry in PENALTY_OPTIONS}  # written with each active penalty


def preset_text(settings: Settings, job: Job, *, is_complete: bool = False) -> str:
    """Return the settings as a preset; `is_complete` adds defaults, and origins as comments.

    If not complete, the description and `extends` of the named presets are kept, and values of extended
    presets are omitted.
    """
    inherited = set() if is_complete else _inherited(settings)
    head = () if is_complete else _head(settings)  # `extends` may itself contain the sentences of needs()
    lines = list(dict.fromkeys([*head, *(f"# {text}" for text in needs(settings, job))]))
    for key, entry in KEYS.items():
        if entry.stage or key in _IN_STAGES or settings.rank(key) in inherited:
            continue
        if settings[key] is None:
            lines += [f"# {key} is not set"] if is_complete else []
        elif is_complete or settings.is_given(key):
            lines.append(
                _noted(
                    f"{key}: {scalar(placed(key, settings[key], Path()))}", settings.where(key), is_complete
                )
            )
    if settings["chain"] and settings.rank("chain") not in inherited:
        order = f"chain: {scalar(settings['chain'])}"
        lines.append(_noted(order, settings.where("chain"), is_complete))
    stages = list(_stages(job, inherited, is_complete))
    return "\n".join([*lines, *(["stages:"] if stages else []), *stages]) + "\n"


def _inherited(settings: Settings) -> set[int]:
    """Return the ranks of presets that another preset extends, and of a compat profile."""
    return {
        rank
        for rank, layer in enumerate(settings.layers)
        if layer.origin == COMPAT or (layer.preset and layer.preset.is_inherited)
    }


def _head(settings: Settings) -> Iterator[str]:
    """Yield the description of the last named preset, and `extends` of all named ones."""
    named = [layer.preset for layer in settings.layers if layer.preset and not layer.preset.is_inherited]
    if named and named[-1].description:
        yield f"# {named[-1].description}"
    if extends := tuple(dict.fromkeys(name for preset in named for name in preset.extends)):
        yield f"extends: {scalar(extends if extends[1:] else extends[0])}"


def needs(settings: Settings, job: Job) -> Iterator[str]:
    """Yield a sentence for each setting of the run that a preset cannot express."""
    if settings["trust_remote_code"]:
        yield "The run had `trust_remote_code`, which only a flag can give."
    for name, _ in job.assembly.chain:
        spec = job.registry.spec(name)
        if spec.source in settings["plugin"]:
            yield f"The stage {name} needs `plugin` = {shlex.quote(spec.source)}, which only a flag can give."
        elif not job.registry.is_builtin(name):
            yield f"The stage {name} needs the package {spec.source}."


def _stages(job: Job, inherited: Set[int], is_complete: bool) -> Iterator[str]:
    entries: dict[str, list[list[str]]] = {}  # by stage: the lines of each of its entries
    for name, params in job.assembly.chain:
        if name == "grammar" and job.structure is not None:  # set by the structure
            continue
        if name in MARKS:  # set by `watermark` and its key file
            continue
        said = job.assembly.of_entry(name, params)
        values = [(entry.field, entry.value, entry.where) for entry in said if entry.rank not in inherited]
        if not said:
            values = [(field, value, f"flag `stage` = {name}") for field, value in _switched_on(params)]
        if values:
            lines = [
                _noted(f"{field}: {scalar(value)}", origin, is_complete) for field, value, origin in values
            ]
            condition = [] if params.when is None else [f"when: {_mapping(params.when.to_mapping())}"]
            entries.setdefault(name, []).append([*lines, *condition])
    for name, several in entries.items():
        yield f"  {name}:"
        for lines in several:
            heads = ["  - ", *["    "] * len(lines)] if several[1:] else ["    "] * len(lines)
            yield from (head + line for head, line in zip(heads, lines, strict=False))


def _mapping(values: Mapping[str, Any]) -> str:
    """Return a mapping as one line of YAML."""
    return "{" + ", ".join(f"{key}: {scalar(value)}" for key, value in values.items()) + "}"


def _switched_on(params: Params) -> Iterator[tuple[str, Any]]:
    """Yield the values that a stage has by its name alone, as for an adapted stage, which is then on."""
    for field in params.own_fields():
        value = getattr(params, field.name)
        if value != field.default:
            yield field.name, value


def _noted(line: str, origin: str, is_complete: bool) -> str:
    return f"{line}  # {origin}" if is_complete else line


def scalar(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, float):
        return ("-.inf" if value < 0 else ".inf") if math.isinf(value) else repr(value)
    if isinstance(value, str):
        text = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=math.inf)
        return str(text).rstrip("\n")
    return "null" if value is None else str(value)
