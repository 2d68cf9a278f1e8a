"""Settings as the text of a preset: what reading it back gives is the same run."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gencli.job import Job
from gencli.options import PENALTY_OPTIONS
from gencli.presets.files import placed
from gencli.presets.keys import KEYS
from gencli.settings import Settings
from processors.params import Params

__all__ = ["needs", "preset_text", "scalar"]

_IN_STAGES = {entry.key for entry in PENALTY_OPTIONS}  # their values stand with each penalty that is on


def preset_text(settings: Settings, job: Job, *, is_complete: bool = False) -> str:
    """The run as a preset, flat, with its seed. `is_complete` adds the defaults, and every origin."""
    lines = [f"# {text}" for text in needs(settings, job)]
    for key, entry in KEYS.items():
        if entry.stage or key in _IN_STAGES or key == "seed":
            continue
        if settings[key] is None:
            lines += [f"# {key} is not set"] if is_complete else []
        elif is_complete or settings.is_given(key):
            lines.append(
                _noted(
                    f"{key}: {scalar(placed(key, settings[key], Path()))}", settings.where(key), is_complete
                )
            )
    seed = settings.where("seed") if settings.is_given("seed") else "chosen for this run"
    lines.append(_noted(f"seed: {job.seed}", seed, is_complete or not settings.is_given("seed")))
    if settings["chain"]:
        order = f"chain: {scalar(settings['chain'])}"
        lines.append(_noted(order, settings.where("chain"), is_complete))
    stages = list(_stages(job, is_complete))
    return "\n".join([*lines, *(["stages:"] if stages else []), *stages]) + "\n"


def needs(settings: Settings, job: Job) -> Iterator[str]:
    """What the run has and a preset cannot have, in sentences."""
    if settings["trust_remote_code"]:
        yield "The run had --trust-remote-code, which only a flag can give."
    for name, _ in job.assembly.chain:
        spec = job.registry.spec(name)
        if spec.source in settings["plugin"]:
            yield f"The stage {name} needs --plugin {shlex.quote(spec.source)}, which only a flag can give."
        elif not job.registry.is_builtin(name):
            yield f"The stage {name} needs the package {spec.source}."


def _stages(job: Job, is_complete: bool) -> Iterator[str]:
    for name, params in job.assembly.chain:
        if name == "grammar" and job.structure is not None:  # which makes it
            continue
        said = [
            (entry.field, entry.value, f"{entry.origin} {entry.said}")
            for entry in job.assembly.of_stage(name)
        ]
        values = said or [(field, value, f"flag --stage {name}") for field, value in _switched_on(params)]
        if values:
            yield f"  {name}:"
        for field, value, origin in values:
            yield _noted(f"    {field}: {scalar(value)}", origin, is_complete)


def _switched_on(params: Params) -> Iterator[tuple[str, Any]]:
    """What a bare --stage name sets: nothing, but for an adapted stage, which is on once it is named."""
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if value != field.default:
            yield field.name, value


def _noted(line: str, origin: str, is_complete: bool) -> str:
    return f"{line}  # {origin}" if is_complete else line


def scalar(value: Any) -> str:
    """A value in one line of YAML."""
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
