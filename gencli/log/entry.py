"""The log's record of a run: everything that reproduces its bytes, except code and models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gencli.config.recipe import Recipe
from gencli.json_text import to_json

__all__ = ["Entry", "PromptEntry"]

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

    @property
    def recipe(self) -> Recipe:
        """Recipe that reproduces the job of the run."""
        return Recipe(self.preset, self.code, self.files)

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
