"""Tables of `gencli config`: values with their origins, faults of presets, differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gencli.cli.commands.chain_view import chain_rows, chain_table
from gencli.cli.terminal.tables import table
from gencli.config.job import Job, make_job
from gencli.config.options.flags import with_flags
from gencli.config.options.run import OPTIONS, Option
from gencli.config.presets.find import describe, find_preset, list_presets
from gencli.config.presets.preset import shown
from gencli.config.presets.stack import expand_preset
from gencli.config.settings import Settings, resolve
from gencli.errors import GencliError
from gencli.files import open_regular
from gencli.json_text import to_json
from gencli.plugins.plugin_registry import make_registry
from processors.errors import ProcessorsError
from processors.params import WHEN
from processors.registry import Registry

__all__ = ["config_json", "config_table", "differences", "lint_report", "preset_table"]


def preset_table() -> str:
    """Return a table of all presets: name, folder, and first comment line."""
    rows = [(name, label, _sentence(path)) for name, label, path in list_presets()]
    return table([("preset", "from", "what it is for"), *rows])


def config_table(settings: Settings, job: Job) -> str:
    """Return a table of every option with value and origin, followed by the table of the chain."""
    rows = [
        (entry.key, to_json(settings[entry.key]), with_flags(settings.where(entry.key)))
        for entry in _plain(settings)
    ]
    return table([("key", "value", "origin"), *rows]) + "\n" + chain_table(job)


def config_json(settings: Settings, job: Job) -> str:
    """Return the settings and the chain with their origins as a JSON object."""
    values = {
        entry.key: {"value": settings[entry.key], "origin": with_flags(settings.where(entry.key))}
        for entry in _plain(settings)
    }
    return to_json({"settings": values, "chain": chain_rows(job)}, indent=2) + "\n"


def differences(one: Settings, other: Settings, *, names: tuple[str, str]) -> str:
    """Return a table with a row for every value that differs between two runs."""
    tables = _all_values(one), _all_values(other)
    keys = [key for key in {**tables[0], **tables[1]} if tables[0].get(key) != tables[1].get(key)]
    rows = [(key, *(to_json(values[key]) if key in values else "-" for values in tables)) for key in keys]
    return table([("value", *names), *rows]) if rows else f"{names[0]} and {names[1]} give the same run.\n"


def lint_report(files: Sequence[str], registry: Registry | None = None) -> list[str]:
    """Return a line for each fault of the preset files and of the presets they extend, each once."""
    registry = registry or make_registry()
    lines: dict[str, None] = {}
    for name in files:
        try:
            faults = list(_faults(name, registry))
        except (GencliError, ProcessorsError) as error:
            faults = [f"{name}: {error}"]
        lines.update(dict.fromkeys(faults))
    return list(lines)


def _faults(name: str, registry: Registry) -> Iterator[str]:
    path = Path(name).resolve() if Path(name).is_file() else find_preset(name)
    presets = expand_preset(path, registry)
    messages = [message for preset in presets for message in preset.messages()]
    yield from messages
    if messages:
        return
    try:  # each key is valid by itself; their combination may not be
        make_job(resolve(*(preset.layer() for preset in presets), registry=registry))
    except (GencliError, ProcessorsError) as error:
        yield f"{shown(presets[-1].path)}: {error}"


def _plain(settings: Settings) -> Iterator[Option]:
    """Yield the options that set no field of a stage; options without a preset key only if given."""
    for entry in OPTIONS:
        if not entry.field and (not entry.flag_only or settings.is_given(entry.key)):
            yield entry


def _all_values(settings: Settings) -> dict[str, object]:
    """Return values of options by key and of stages by "name.field"; "order" is the order of the chain."""
    job = make_job(settings)
    values: dict[str, object] = {entry.key: settings[entry.key] for entry in _plain(settings)}
    del values["chain"], values["temperature_last"]
    values["order"] = list(dict.fromkeys(name for name, _ in job.chain))
    for name, params in job.assembly.chain:
        given = params.to_mapping()
        where = f" {to_json(given.pop(WHEN))}" if WHEN in given else ""
        values.update({f"{name}.{key}{where}": value for key, value in given.items()})
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _sentence(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return describe(file.readline(800))[:200]
    except OSError as error:
        return f"({error.strerror})"
