"""The folders of presets (./configs, the user's folder, gencli's own), file names in their values, and
words for completion in the shell and in a chat: files, presets, models, stages, their fields.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gencli.config.run_options import profiles
from gencli.core.request import BUILT_IN_DRAFTERS, NO_DRAFTER
from gencli.errors import ConfigError
from gencli.models.files.local_models import local_names
from gencli.plugins.discovery import installed_plugins
from gencli.structured.schema_inputs import exists, named_file
from gencli.templates.prompt_templates import template_file
from processors.catalog import Phase
from processors.chain import GROUPS
from processors.errors import close_names, did_you_mean
from processors.params import Params, describe
from processors.registry import builtin_registry

PresetFile = tuple[str, str, Path]  # name, label of the folder, file
_PACKAGE = Path(__file__).parents[1]


def defaults_file() -> Path:
    """Return the file of the user's defaults, the first preset of every run; it may not exist."""
    from platformdirs import user_config_path

    return user_config_path("gencli") / "defaults.yaml"


def folders() -> tuple[tuple[str, Path], ...]:
    """Return labels and folders in the order of the search."""
    from platformdirs import user_config_path

    return (
        ("./configs", Path.cwd() / "configs"),
        ("user", user_config_path("gencli") / "presets"),
        ("bundled", shipped_presets()),
    )


def profile_file(name: str) -> Path:
    """Return the file of a compat profile, which comes with gencli."""
    return shipped_presets() / "compat" / f"{name}.yaml"


def shipped_presets() -> Path:
    """Return the folder of the presets that come with gencli."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"  # the folder of a checkout


def list_presets() -> list[PresetFile]:
    """Return the presets of all folders, sorted by name; the first folder wins for a duplicate name."""
    presets: dict[str, PresetFile] = {}
    for label, folder in folders()[::-1]:
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            other = presets[path.stem][2] if path.stem in presets else None
            # A link that leads nowhere is no other path's file.
            if other is None or not (exists(path) and exists(other) and path.samefile(other)):
                presets[path.stem] = (path.stem, label, path)
    return [presets[name] for name in sorted(presets)]


def is_path(name: str) -> bool:
    """Return whether the name is a path, not the name of a preset in the folders."""
    return name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name


def description_of(content: bytes) -> str:
    """Return the description of a preset: its first line if it is a comment, otherwise ""."""
    line = content.partition(b"\n")[0].decode(errors="replace").strip()
    return line.lstrip("# ") if line.startswith("#") else ""


def find_preset(name: str, *, folder: Path | None = None) -> Path:
    """Return the file of a preset by name, or by path relative to `folder`. Raises ConfigError.

    A folder, a pipe or a link that leads nowhere is returned too: whoever reads it is told what it is.
    """
    if is_path(name):
        path = Path(folder or ".") / Path(name).expanduser()
        if not os.path.lexists(path):
            raise ConfigError(f"There is no preset file {name}.")
        return path.resolve()
    for _, parent in folders():
        path = parent / f"{name}.yaml"
        if os.path.lexists(path):
            return path.resolve()
    close = close_names(name, [preset for preset, _, _ in list_presets()])
    beside = Path(folder or ".") / f"{name}.yaml"
    hint = did_you_mean([f"./{name}.yaml"] if exists(beside) else [*map(repr, close)])
    hint = hint or "gencli config list shows those there are."
    raise ConfigError(f"There is no preset {name!r}.", hint=hint)


def placed(key: str, value: Any, folder: Path) -> Any:
    """Return the value of a key; a file relative to `folder` becomes an absolute path."""
    find = template_file if key == "template" else partial(named_file, key)
    path = find(value, folder) if isinstance(value, str) else None
    return value if path is None else os.path.abspath(path)


_PRESETS = (".yaml", ".yml")
_MAX_ENTRIES = 1000  # limit of entries of a folder


def paths(beginning: str, *, suffixes: Collection[str] | None = None) -> list[str]:
    """Return the folders, and the files with one of the suffixes (None: any), that complete a path.

    A folder ends with a slash. Hidden entries are offered after a typed dot.
    """
    head, _, tail = beginning.rpartition("/")
    typed = beginning.removesuffix(tail)
    folder = Path(head or ("/" if beginning.startswith("/") else ".")).expanduser()
    words = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
                if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
                    continue
                if entry.is_dir():
                    words.append(f"{typed}{entry.name}/")
                elif suffixes is None or entry.name.endswith(tuple(suffixes)):
                    words.append(typed + entry.name)
    except OSError:
        return []
    return sorted(words)


def folder_words(beginning: str) -> list[str]:
    """Return the folders that complete a path."""
    return paths(beginning, suffixes=())


def presets(beginning: str) -> list[str]:
    """Return presets by name; YAML files if the word begins a path."""
    if "/" in beginning or beginning.startswith("."):
        return paths(beginning, suffixes=_PRESETS)
    return with_prefix(beginning, (name for name, _, _ in list_presets()))


def presets_and_files(beginning: str) -> list[str]:
    """Return presets by name, and YAML files."""
    return list(dict.fromkeys([*presets(beginning), *paths(beginning, suffixes=_PRESETS)]))


def sides(beginning: str) -> list[str]:
    """Return presets, preset files, and profiles such as compat:hf."""
    return [*presets(beginning), *with_prefix(beginning, (f"compat:{name}" for name in profiles()))]


def models(beginning: str) -> list[str]:
    """Return models on this machine by name, folders, and GGUF files."""
    return [*with_prefix(beginning, local_names()), *paths(beginning, suffixes=(".gguf",))]


def drafters(beginning: str) -> list[str]:
    """Return the values of the option `draft`: none, drafters without a model, and models."""
    return [*with_prefix(beginning, (NO_DRAFTER, *BUILT_IN_DRAFTERS)), *models(beginning)]


def stage_names(beginning: str) -> list[str]:
    """Return built-in stages and stages of installed packages, without importing their code."""
    names = [*builtin_registry().names(), *(plugin.name for plugin in installed_plugins())]
    return with_prefix(beginning, names)


def stages_and_files(beginning: str) -> list[str]:
    """Return stages by name, and Python files."""
    return [*stage_names(beginning), *paths(beginning, suffixes=(".py",))]


def stage_values(beginning: str) -> list[str]:
    """Return completions of the option `stage`: a name, then `name:field=value,field=value`."""
    name, colon, fields = beginning.partition(":")
    if not colon:
        return stage_names(beginning)
    if name not in builtin_registry():
        return []
    params = builtin_registry().spec(name).params
    done, comma, last = fields.rpartition(",")
    used = {part.partition("=")[0] for part in done.split(",")}
    head = f"{name}:{done}{comma}"
    return [head + word for word in _fields(params, last) if word.partition("=")[0] not in used]


def stage_order(beginning: str) -> list[str]:
    """Return completions of the option `chain`: names, groups and phases separated by commas."""
    done, comma, last = beginning.rpartition(",")
    words = [*builtin_registry().names(), *GROUPS, *(phase.name.lower() for phase in Phase)]
    return [done + comma + word for word in words if word.startswith(last) and word not in done.split(",")]


def _fields(params: type[Params], beginning: str) -> Iterator[str]:
    typed, equals, value = beginning.partition("=")
    for field, about in describe(params).items():
        if equals and field == typed:
            hint = about["type"]
            choices = ("true", "false") if hint is bool else getattr(hint, "__args__", ())
            texts = [choice for choice in choices if isinstance(choice, str)]
            yield from (f"{field}={choice}" for choice in with_prefix(value, texts))
        elif not equals and field.startswith(typed):
            yield f"{field}="


def with_prefix(beginning: str, words: Iterable[str]) -> list[str]:
    """Return the words that begin so."""
    return [word for word in words if word.startswith(beginning)]
