"""Recipe that reproduces the job of a run: settings as a preset, flags that name code, hashes of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from gencli.config.job import Job
from gencli.config.layers import profile_layers
from gencli.config.presets.read import read_text
from gencli.config.presets.write import preset_text
from gencli.config.settings import FLAG, Layer, Settings, resolve
from gencli.errors import ConfigError, UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.plugins.plugin_registry import make_registry
from gencli.structured.schema_inputs import named_file
from gencli.watermark_keys import file_fingerprint
from gencli.yaml_text import Bounds

__all__ = ["CODE", "Recipe", "code_of", "files_of"]

CODE = ("plugin", "pydantic", "trust_remote_code")  # options that name code, which is not recorded
_FILES = ("json_schema", "grammar", "lark", "structural_tag", "tools", "watermark_key")
_BOUNDS = Bounds("recorded run", max_bytes=MAX_PROMPT, max_nodes=1_000_000, max_depth=20)


@dataclass(frozen=True, slots=True)
class Recipe:
    """`preset` extends no other and has the seed; `code`: flags that name code and have to be given again.

    `files` maps option keys to path and SHA-256 (None for a pipe).
    """

    preset: str
    code: Mapping[str, Any]
    files: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Settings, job: Job, files: Mapping[str, Any] | None = None) -> Self:
        """Return the recipe of a run. `files`: path and hash of each file at the run's start, if known."""
        layers = (replace(layer, preset=None) for layer in settings.layers)
        flat = resolve(*layers, ("run", {"seed": job.seed}), registry=settings.registry)
        return cls(preset_text(flat, job), code_of(settings), files_of(settings) if files is None else files)

    def settings(self, given: Mapping[str, Any], origin: str, **fixed: Any) -> Settings:
        """Return the run's own settings, independent of current defaults, variables and model files.

        `given`: flags that name code. `origin`: where the run is recorded. `fixed`: further values. Raises
        UsageError if the flags differ from the run's, ConfigError for an invalid preset, a file that is not
        recorded, or one that has changed.
        """
        for key in CODE:
            if key in self.code and not given.get(key):
                value = self.code[key]
                names = [value] if isinstance(value, str) else value
                values = "" if value is True else f" = {', '.join(names)}"
                raise UsageError(
                    f"The run had `{key}`{values}, but the {origin} does not record code.",
                    hint=f"Give `{key}` again.",
                )
            if given.get(key) and key not in self.code:
                raise UsageError(f"The run had no `{key}`.", hint="Leave it out.")
        registry = make_registry(given.get("plugin") or ())
        preset = read_text(self.preset.encode(), Path("recorded run"), registry, _BOUNDS)
        if messages := preset.messages():
            raise ConfigError(messages[0])
        flags = Layer.of(FLAG, {**{key: value for key, value in given.items() if value}, **fixed})
        base = profile_layers(preset.values.get("compat"), registry)
        settings = resolve(*base, preset.layer(origin), flags, registry=registry)
        self._refuse_changed(settings, origin)
        return settings

    def _refuse_changed(self, settings: Settings, origin: str) -> None:
        """Raise ConfigError with the file's name if a file of the run has changed or has no hash."""
        for key, path in _named(settings):
            if self.files.get(key, {}).get("path") != os.path.abspath(path):
                raise ConfigError(
                    f"The {origin} has no hash of {path} ({key}), so the run cannot be repeated."
                )
        for key, file in self.files.items():
            name = f"{file['path']} ({key})"
            if file["sha256"] is None:
                raise ConfigError(f"The run read {name} from a pipe, whose content is not recorded.")
            if (digest := _digest(Path(file["path"]), key)) != file["sha256"]:
                state = "cannot be read" if digest is None else "has changed since"
                raise ConfigError(f"The run read {name}, which {state}.")


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
    if key == "watermark_key":  # a plain hash would allow short keys to be guessed
        return file_fingerprint(path)
    try:
        return sha256(read_file(path, MAX_PROMPT)).hexdigest()
    except OSError:
        return None
