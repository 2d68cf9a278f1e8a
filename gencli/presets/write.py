"""Settings as the text of a preset: what reading it back gives is the same run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import yaml

from gencli.job import Job
from gencli.options import PENALTY_OPTIONS
from gencli.presets.keys import KEYS
from gencli.settings import Settings

__all__ = ["preset_text", "scalar"]

_IN_STAGES = {entry.key for entry in PENALTY_OPTIONS}  # their values stand with each penalty that is on


def preset_text(settings: Settings, job: Job, *, is_complete: bool = False) -> str:
    """The run as a preset, flat, with its seed. `is_complete` adds the defaults, and every origin."""
    lines = [*_comments(settings)]
    for key, entry in KEYS.items():
        if entry.stage or key in _IN_STAGES or key == "seed":
            continue
        if settings[key] is None:
            lines += [f"# {key} is not set"] if is_complete else []
        elif is_complete or settings.is_given(key):
            lines.append(_noted(f"{key}: {scalar(settings[key])}", settings.where(key), is_complete))
    seed = settings.where("seed") if settings.is_given("seed") else "chosen for this run"
    lines.append(_noted(f"seed: {job.seed}", seed, is_complete or not settings.is_given("seed")))
    if settings["chain"]:
        order = f"chain: {scalar(settings['chain'])}"
        lines.append(_noted(order, settings.where("chain"), is_complete))
    stages = list(_stages(job, is_complete))
    return "\n".join([*lines, *(["stages:"] if stages else []), *stages]) + "\n"


def _comments(settings: Settings) -> Iterator[str]:
    """What the run has and a preset cannot have."""
    if settings["trust_remote_code"]:
        yield "# The run had --trust-remote-code, which only a flag can give."


def _stages(job: Job, is_complete: bool) -> Iterator[str]:
    for name, _ in job.assembly.chain:
        said = job.assembly.of_stage(name)
        if said:  # a bare --stage name has its defaults, which are off
            yield f"  {name}:"
        for entry in said:
            line = f"    {entry.field}: {scalar(entry.value)}"
            yield _noted(line, f"{entry.origin} {entry.said}", is_complete)


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
