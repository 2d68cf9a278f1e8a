"""What takes the events of a run for the log: it keeps the run, or compares it with one that was kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gencli import __version__
from gencli.cli.commands.chain_view import chain_rows
from gencli.cli.flags import with_flags
from gencli.cli.report import RunInfo, record
from gencli.cli.terminal.display import load_progress
from gencli.cli.terminal.render import Stderr, say_notice
from gencli.config.named_models import named_models
from gencli.config.settings import Settings
from gencli.core.events import Event
from gencli.errors import GencliError
from gencli.log.entry import Entry, PromptEntry, code_of, files_of, flat_preset
from gencli.log.store import add_run
from gencli.models.files.identity import identify_model
from gencli.results.results import Results, Row
from processors.registry import Registry

__all__ = ["compare", "differences", "keep", "model_records"]

_TEXTS = ("prompt", "text", "texts")  # of a record, which the log has by themselves


def keep(settings: Settings, voice: Stderr) -> Callable[[Results, RunInfo], _LogWriter]:
    """What makes the writer that keeps a run."""
    return lambda results, info: _LogWriter(results, info, settings, voice)


def compare(entry: Entry) -> Callable[[Results, RunInfo], _Comparison]:
    """What makes the writer that compares a run with the texts of one that was kept."""
    return lambda results, info: _Comparison(results, entry)


def model_records(settings: Settings, registry: Registry, voice: Stderr) -> dict[str, Any]:
    """Name, revision and SHA-256 of the models of a run, by the key of their option; null for `fake`."""
    found: dict[str, Any] = {}
    for key, name in named_models(settings, registry).items():
        with load_progress(name, voice, "Hashing") as on_bytes:
            identity = identify_model(name, on_bytes)
        revision, digest = (identity.revision, identity.sha256) if identity else (None, None)
        found[key] = {"name": name, "revision": revision, "sha256": digest}
    return found


class _LogWriter:
    """Keeps the run in the log when its result has been written; a notice says why if that fails."""

    def __init__(self, results: Results, info: RunInfo, settings: Settings, voice: Stderr) -> None:
        self._results, self._info, self._settings = results, info, settings
        self._time = datetime.now(UTC).isoformat(timespec="seconds")
        # Files may change while the run goes on; these are what it has read.
        self._files = files_of(settings)
        self._models = model_records(settings, info.job.registry, voice)

    def add(self, event: Event) -> None:
        """Nothing is kept before the end."""

    def close(self) -> None:
        """Keep the run."""
        try:
            add_run(self._entry())
        except GencliError as error:
            say_notice(f"The run is not kept. {error.message}")

    def _entry(self) -> Entry:
        settings, job = self._settings, self._info.job
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
            preset=flat_preset(settings, job),
            settings=values,
            chain=chain_rows(job),
            code=code_of(settings),
            models=self._models,
            files=self._files,
            prompts=tuple(self._prompt(row) for row in self._results.rows),
        )

    def _prompt(self, row: Row) -> PromptEntry:
        whole = record(row, self._info)
        rest = {key: value for key, value in whole.items() if key not in _TEXTS}
        return PromptEntry(row.prompt, _texts(row), rest)


class _Comparison:
    """Says at the end of a run where its texts are not those of the one that was kept."""

    def __init__(self, results: Results, entry: Entry) -> None:
        self._results, self._entry = results, entry

    def add(self, event: Event) -> None:
        """Texts are compared when they are complete."""

    def close(self) -> None:
        """Compare the texts."""
        pairs = zip(self._results.rows, self._entry.prompts, strict=True)
        others = [row.id for row, before in pairs if _texts(row) != before.texts]
        if others:
            which = f" of prompt {', '.join(others)}" if len(self._results.rows) > 1 else ""
            say_notice(f"The text{which} is not the one that was logged.")


def differences(entry: Entry, models: Mapping[str, Any]) -> list[str]:
    """What is not as it was when the run was logged, in sentences."""
    found = []
    if entry.version != __version__:
        found.append(f"The run was made by gencli {entry.version}, this is {__version__}.")
    for key, before in entry.models.items():
        now = models.get(key)
        if now is None or now["sha256"] != before["sha256"]:
            found.append(f"The weights of {before['name']} ({key}) are not those of the run.")
    return found


def _texts(row: Row) -> tuple[str | None, ...]:
    """The texts of a row that were written."""
    outcomes = enumerate(row.outcomes)
    return tuple(row.shown(sample) if outcome is not None else None for sample, outcome in outcomes)
