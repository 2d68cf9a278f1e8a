"""The log's record of a run: everything that reproduces its bytes, except code and models."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from gencli.config.job import Job
from gencli.config.presets.read import read_text
from gencli.config.presets.write import preset_text
from gencli.config.settings import FLAG, Layer, Settings, resolve
from gencli.errors import ConfigError, UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.json_text import to_json
from gencli.plugins.registry import make_registry
from gencli.structured.files import named_file
from gencli.watermark.key_file import file_fingerprint
from gencli.yaml_tree import Bounds

__all__ = [
    "CODE",
    "Entry",
    "PromptEntry",
    "code_of",
    "files_of",
    "flat_preset",
    "refuse_changed",
    "settings_of",
]

CODE = ("plugin", "pydantic", "trust_remote_code")  # options whose code is not recorded
_FILES = ("json_schema", "grammar", "lark", "structural_tag", "tools", "watermark_key")
_BOUNDS = Bounds("logged run", max_bytes=MAX_PROMPT, max_nodes=1_000_000, max_depth=20)
_COLUMNS = ("time", "version", "model", "seed", "exit_code", "prompts")


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A prompt, its texts (None for a sample without a result), and the other fields of its JSON record."""

    prompt: str
    texts: tuple[str | None, ...]
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A run. `time` is UTC; `folder` is the working directory at its start.

    `preset` reproduces the run together with `code`, the flags that name code. `models` maps option keys to
    name, revision and SHA-256 of the weights; `files` maps option keys to path and SHA-256, None for a pipe.
    """

    time: str
    version: str
    model: str
    seed: int
    exit_code: int
    folder: str
    preset: str
    settings: Mapping[str, Any]
    chain: list[dict[str, str]]
    code: Mapping[str, Any]
    models: Mapping[str, Any]
    files: Mapping[str, Any]
    prompts: tuple[PromptEntry, ...]

    def details(self) -> str:
        """Return the fields without a column of their own, as JSON."""
        return to_json({key: value for key, value in asdict(self).items() if key not in _COLUMNS})

    @classmethod
    def of(cls, row: Mapping[str, Any], prompts: tuple[PromptEntry, ...]) -> Entry:
        """Return the run of a database row. Raises ValueError for damaged details."""
        columns = {key: row[key] for key in ("time", "version", "model", "exit_code")}
        try:
            return cls(**columns, seed=int(row["seed"]), prompts=prompts, **json.loads(row["details"]))
        except TypeError:
            raise ValueError(f"run {row['number']} is damaged") from None


def flat_preset(settings: Settings, job: Job) -> str:
    """Return the run as one preset that extends no other, with the seed of the run."""
    layers = (replace(layer, preset=None) for layer in settings.layers)
    return preset_text(resolve(*layers, ("run", {"seed": job.seed}), registry=settings.registry), job)


def code_of(settings: Settings) -> dict[str, Any]:
    """Return the options of the run that name code."""
    return {key: settings[key] for key in CODE if settings[key]}


def files_of(settings: Settings) -> dict[str, Any]:
    """Return path and current SHA-256 of each file in the settings, by option key."""
    return {
        key: {"path": os.path.abspath(path), "sha256": _digest(path, key)} for key, path in _named(settings)
    }


def _named(settings: Settings) -> Iterator[tuple[str, Path]]:
    for key in _FILES:
        path = named_file(key, settings[key]) if settings[key] else None
        if path is not None:
            yield key, path


def _digest(path: Path, key: str) -> str | None:
    if key == "watermark_key":  # a plain hash would let short keys be guessed
        return file_fingerprint(path)
    try:
        return sha256(read_file(path, MAX_PROMPT)).hexdigest()
    except OSError:
        return None


def refuse_changed(entry: Entry) -> None:
    """Raise ConfigError with the file's name if a file of the run has changed."""
    for key, file in entry.files.items():
        name = f"{file['path']} ({key})"
        if file["sha256"] is None:
            raise ConfigError(f"The run read {name} from a pipe, whose content is not recorded.")
        if (digest := _digest(Path(file["path"]), key)) != file["sha256"]:
            state = "cannot be read" if digest is None else "has changed since"
            raise ConfigError(f"The run read {name}, which {state}.")


def settings_of(entry: Entry, code: Mapping[str, Any]) -> Settings:
    """Return the run's own settings, independent of current defaults, variables and model files.

    `code` are the flags that name code. Raises UsageError if they are not those of the run.
    """
    for key in CODE:
        if key in entry.code and not code.get(key):
            value = entry.code[key]
            values = "" if value is True else " = " + ", ".join([value] if isinstance(value, str) else value)
            raise UsageError(
                f"The run had `{key}`{values}, but the log does not record code.", hint=f"Give `{key}` again."
            )
        if code.get(key) and key not in entry.code:
            raise UsageError(f"The run had no `{key}`.", hint="Leave it out.")
    registry = make_registry(code.get("plugin") or ())
    preset = read_text(entry.preset.encode(), Path("logged run"), registry, _BOUNDS)
    if messages := preset.messages():
        raise ConfigError(messages[0])
    flags = Layer.of(FLAG, {**{key: value for key, value in code.items() if value}, "log": False})
    return resolve(preset.layer("log"), flags, registry=registry)
