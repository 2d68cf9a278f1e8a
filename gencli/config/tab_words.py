"""Words for completion in the shell and in a chat: files, presets, models, stages, their fields."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from gencli.config.options.compat import profiles
from gencli.config.options.drafts import BUILT_IN, NO_DRAFTER
from gencli.config.presets.find import list_presets
from gencli.models.files.local_models import local_names
from gencli.plugins.discovery import installed_plugins
from processors.catalog import Phase
from processors.order import GROUPS
from processors.params import Params, describe
from processors.registry import builtin_registry

__all__ = [
    "drafters",
    "folders",
    "models",
    "paths",
    "presets",
    "presets_and_files",
    "sides",
    "stage_names",
    "stage_order",
    "stage_values",
    "stages_and_files",
]

_PRESETS = (".yaml", ".yml")
_MAX_ENTRIES = 1000  # limit of entries of a folder


def paths(beginning: str, *, suffixes: Collection[str] | None = None) -> list[str]:
    """Return the folders, and the files with one of the suffixes (None: any), that complete a path.

    A folder ends with a slash. Hidden entries are offered after a typed dot.
    """
    head, _, tail = beginning.rpartition("/")
    typed = beginning.removesuffix(tail)
    folder = Path(head or ("/" if beginning.startswith("/") else ".")).expanduser()
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
                if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
                    continue
                if entry.is_dir():
                    found.append(f"{typed}{entry.name}/")
                elif suffixes is None or entry.name.endswith(tuple(suffixes)):
                    found.append(typed + entry.name)
    except OSError:
        return []
    return sorted(found)


def folders(beginning: str) -> list[str]:
    """Return the folders that complete a path."""
    return paths(beginning, suffixes=())


def presets(beginning: str) -> list[str]:
    """Return presets by name; YAML files if the word begins a path."""
    if "/" in beginning or beginning.startswith("."):
        return paths(beginning, suffixes=_PRESETS)
    return _of(beginning, (name for name, _, _ in list_presets()))


def presets_and_files(beginning: str) -> list[str]:
    """Return presets by name, and YAML files."""
    return list(dict.fromkeys([*presets(beginning), *paths(beginning, suffixes=_PRESETS)]))


def sides(beginning: str) -> list[str]:
    """Return presets, preset files, and profiles such as compat:hf."""
    return [*presets(beginning), *_of(beginning, (f"compat:{name}" for name in profiles()))]


def models(beginning: str) -> list[str]:
    """Return models on this machine by name, folders, and GGUF files."""
    return [*_of(beginning, local_names()), *paths(beginning, suffixes=(".gguf",))]


def drafters(beginning: str) -> list[str]:
    """Return the values of the option `draft`: none, drafters without a model, and models."""
    return [*_of(beginning, (NO_DRAFTER, *BUILT_IN)), *models(beginning)]


def stage_names(beginning: str) -> list[str]:
    """Return built-in stages and stages of installed packages, without importing their code."""
    return _of(beginning, [*builtin_registry().names(), *(plugin.name for plugin in installed_plugins())])


def stages_and_files(beginning: str) -> list[str]:
    """Return stages by name, and Python files."""
    return [*stage_names(beginning), *paths(beginning, suffixes=(".py",))]


def stage_values(beginning: str) -> list[str]:
    """Return completions of the option `stage`: a name, then `name:field=value,field=value`."""
    name, colon, rest = beginning.partition(":")
    if not colon:
        return stage_names(beginning)
    if name not in builtin_registry():
        return []
    params = builtin_registry().spec(name).params
    done, comma, last = rest.rpartition(",")
    given = {part.partition("=")[0] for part in done.split(",")}
    head = f"{name}:{done}{comma}"
    return [head + word for word in _fields(params, last) if word.partition("=")[0] not in given]


def stage_order(beginning: str) -> list[str]:
    """Return completions of the option `chain`: names, groups and phases separated by commas."""
    done, comma, last = beginning.rpartition(",")
    words = [*builtin_registry().names(), *GROUPS, *(phase.name.lower() for phase in Phase)]
    return [done + comma + word for word in words if word.startswith(last) and word not in done.split(",")]


def _fields(params: type[Params], beginning: str) -> Iterator[str]:
    field, equals, value = beginning.partition("=")
    for known, about in describe(params).items():
        if equals and known == field:
            choices = _choices(about["type"])
            yield from (f"{field}={choice}" for choice in choices if choice.startswith(value))
        elif not equals and known.startswith(field):
            yield f"{known}="


def _choices(hint: object) -> tuple[str, ...]:
    """Return the values of a field; () if they cannot be listed."""
    if hint is bool:
        return ("true", "false")
    found = getattr(hint, "__args__", ())
    return tuple(choice for choice in found if isinstance(choice, str))


def _of(beginning: str, words: Collection[str] | Iterator[str]) -> list[str]:
    return [word for word in words if word.startswith(beginning)]
