"""Writers for the run log: one stores a run, one compares a run with a logged one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gencli import __version__
from gencli.cli.commands.chain_view import chain_rows
from gencli.cli.terminal.render import say_notice
from gencli.cli.terminal.stderr import Stderr
from gencli.config.named_models import named_models
from gencli.config.options.flags import with_flags
from gencli.config.recipe import Recipe, files_of
from gencli.config.settings import Settings
from gencli.core.events import Event
from gencli.errors import GencliError
from gencli.log import Entry, PromptEntry, add_run
from gencli.models.files.checkpoint import identify_model
from gencli.results.run_record import RunInfo, record
from gencli.results.run_results import Results, Row
from processors.registry import Registry

__all__ = ["compare", "differences", "keep", "model_records"]

_TEXTS = ("prompt", "text", "texts")  # keys of a record that the log stores in separate fields


def keep(settings: Settings, voice: Stderr) -> Callable[[Results, RunInfo], _LogWriter]:
    """Return a factory of the writer that stores the run in the log."""
    return lambda results, info: _LogWriter(results, info, settings, voice)


def compare(entry: Entry) -> Callable[[Results, RunInfo], _Comparison]:
    """Return a factory of the writer that compares the texts of a run with those of `entry`."""
    return lambda results, info: _Comparison(results, entry)


def model_records(settings: Settings, registry: Registry, voice: Stderr) -> dict[str, Any]:
    """Return name, revision and SHA-256 of each model of a run by option key; both null for `fake`."""
    records: dict[str, Any] = {}
    for key, name in named_models(settings, registry).items():
        with voice.loading(name, "Hashing") as on_bytes:
            identity = identify_model(name, on_bytes)
        revision, digest = (identity.revision, identity.sha256) if identity else (None, None)
        records[key] = {"name": name, "revision": revision, "sha256": digest}
    return records


class _LogWriter:
    """Stores the run in the log at its end. If that fails, a notice gives the reason."""

    def __init__(self, results: Results, info: RunInfo, settings: Settings, voice: Stderr) -> None:
        self._results, self._info, self._settings = results, info, settings
        self._time = datetime.now(UTC).isoformat(timespec="seconds")
        # Read now, because files may change during the run.
        self._files = files_of(settings)
        self._models = model_records(settings, info.job.registry, voice)

    def add(self, event: Event) -> None:
        """Do nothing; the run is stored at its end."""

    def close(self) -> None:
        """Store the run."""
        try:
            add_run(self._entry())
        except GencliError as error:
            say_notice(f"The run is not kept. {error.message}")

    def _entry(self) -> Entry:
        settings, job = self._settings, self._info.job
        recipe = Recipe.of(settings, job, self._files)
        values = {
            key: {"value": settings[key], "origin": with_flags(settings.where(key))}
            for key in settings
            if settings.is_given(key)
        }
        return Entry(
            time=self._time,
            version=__version__,
            model=self._info.model,
            seed=job.seed,
            exit_code=self._results.exit_code,
            folder=os.getcwd(),
            preset=recipe.preset,
            settings=values,
            chain=chain_rows(job),
            code=recipe.code,
            models=self._models,
            files=recipe.files,
            prompts=tuple(self._prompt(row) for row in self._results.rows),
        )

    def _prompt(self, row: Row) -> PromptEntry:
        fields = {key: value for key, value in record(row, self._info).items() if key not in _TEXTS}
        return PromptEntry(row.prompt, _texts(row), fields)


class _Comparison:
    """Prints a notice at the end of a run if its texts differ from those of the logged run."""

    def __init__(self, results: Results, entry: Entry) -> None:
        self._results, self._entry = results, entry

    def add(self, event: Event) -> None:
        """Do nothing; texts are compared at the end."""

    def close(self) -> None:
        """Compare the texts."""
        pairs = zip(self._results.rows, self._entry.prompts, strict=True)
        changed = [row.id for row, before in pairs if _texts(row) != before.texts]
        if changed:
            which = f" of prompt {', '.join(changed)}" if len(self._results.rows) > 1 else ""
            say_notice(f"The text{which} is not the one that was logged.")


def differences(entry: Entry, models: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference from the logged run: gencli's version, weights of models."""
    found = []
    if entry.version != __version__:
        found.append(f"The run was made by gencli {entry.version}, this is {__version__}.")
    for key, before in entry.models.items():
        now = models.get(key)
        if now is None or now["sha256"] != before["sha256"]:
            found.append(f"The weights of {before['name']} ({key}) are not those of the run.")
    return found


def _texts(row: Row) -> tuple[str | None, ...]:
    """Return the text of each sample of a row as it was written; None for one without an outcome."""
    outcomes = enumerate(row.outcomes)
    return tuple(row.shown(sample) if outcome is not None else None for sample, outcome in outcomes)
