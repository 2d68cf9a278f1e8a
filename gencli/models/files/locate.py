"""Locate models on this machine: bundled, by alias, in the hub's cache, or in a folder. Light to import."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from gencli.config.options.drafts import BUILT_IN, NO_DRAFTER
from gencli.errors import ConfigError, ModelError, UsageError
from gencli.files import other_kind, read_file, replaced
from gencli.hub.cache import find_file, find_gguf, find_snapshot, hub_models
from gencli.hub.names import read_hub_name
from gencli.models.gguf.head import is_gguf
from processors.names import close_names, did_you_mean

__all__ = [
    "BUNDLED",
    "absent",
    "add_alias",
    "alias_file",
    "bundled_folder",
    "find_local",
    "full_name",
    "is_bundled",
    "local_names",
    "near_names",
    "read_aliases",
    "remove_alias",
]

BUNDLED = ("tiny", "tiny-draft", "fake")


def bundled_folder(name: str) -> Path:
    """Return the folder of a bundled model."""
    return Path(str(files("gencli") / "assets" / name))


def is_bundled(name: str) -> bool:
    """Return whether a name or folder is that of a bundled model, whose files are trusted like gencli."""
    return name in BUNDLED or Path(name) in [bundled_folder(bundled) for bundled in BUNDLED]


def full_name(name: str) -> str:
    """Return the target of an alias, or the name itself. A bundled name is never an alias."""
    return name if name in BUNDLED or "/" in name else read_aliases().get(name, name)


def find_local(name: str) -> Path | None:
    """Return the folder of a bundled model, an alias, a path, or a hub name in the cache; None if absent.

    A GGUF file is returned itself, also that of a repository in the cache: org/name:Q4_0, org/name/file.gguf.
    """
    name = full_name(name)
    if name in BUNDLED:
        return None if name == "fake" else bundled_folder(name)
    with suppress(RuntimeError):  # the home folder is unknown
        path = Path(name).expanduser()
        if path.is_dir() or (is_gguf(path) and path.is_file()):
            return path
    hub = read_hub_name(name)
    if hub is not None and hub.gguf:
        return find_gguf(hub)
    if is_gguf(name):
        repo, _, file = name.rpartition("/")
        hub = read_hub_name(repo)
        return None if hub is None else find_file(hub, file)
    return None if hub is None else find_snapshot(hub)


def absent(name: str) -> ModelError:
    """Return the error for a model that is not on this machine."""
    target = full_name(name)
    shown = name if target == name else f"{name} ({target})"
    with suppress(RuntimeError, ValueError):  # the home folder is unknown; a null character
        if kind := other_kind(Path(target).expanduser()):
            needed = "a GGUF file" if is_gguf(target) else "a folder or a GGUF file"
            return ModelError(f"{shown} is {kind}, but has to be {needed}.")
    if is_gguf(target) and ":" not in target:
        repo, _, file = target.rpartition("/")
        hub = read_hub_name(repo)
        fetch = f"gencli models pull {hub.repo}:{file} fetches it." if hub else ""
        return ModelError(f"There is no file {shown}.", hint=fetch)
    if target.startswith((".", "/", "~")) or target.count("/") > 1:
        return ModelError(f"There is no folder {shown}.")
    guess = did_you_mean([repr(close) for close in near_names(name)])
    pull = f"gencli models pull {target} fetches it from the hub."
    if read_hub_name(target) is None:
        pull = "Models of the hub are named as in org/name, org/name@revision or org/name:Q4_0."
    hint = guess if guess and "/" not in target else f"{pull} {guess}".strip()
    return ModelError(f"{shown} is neither a folder nor a model on this machine.", hint=hint)


def near_names(name: str) -> list[str]:
    """Return local models with a similar name. The match is looser than for options: there are few names."""
    return close_names(name, local_names(), more=1)


def local_names() -> list[str]:
    """Return all model names on this machine that are no paths."""
    aliases: dict[str, str] = {}
    with suppress(ConfigError):  # reported where an alias is needed
        aliases = read_aliases()
    return [*BUNDLED, *aliases, *(name for name, _ in hub_models())]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_BYTES = 2**20  # of the file


def alias_file() -> Path:
    """Return the path of the alias file."""
    from platformdirs import user_config_path

    return user_config_path("gencli") / "aliases.json"


def read_aliases() -> dict[str, str]:
    """Return the target of each alias. Raises ConfigError for a file that cannot be read or is malformed."""
    path = alias_file()
    if not os.path.lexists(path):
        return {}
    try:
        found: Any = json.loads(read_file(path, _MAX_BYTES))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(target, str) for target in found.values()):
        raise ConfigError(
            f"{path} holds no aliases.", hint='It is a JSON object of texts, as in {"small": "org/name"}.'
        )
    return {name: target for name, target in found.items() if _NAME.fullmatch(name)}


def add_alias(name: str, target: str, bundled: tuple[str, ...]) -> str:
    """Add an alias for a hub name or a folder; return the target. `bundled` names cannot be redefined.

    Raises UsageError for a name that is already in use, and for a target that is no model name.
    """
    aliases = read_aliases()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be an alias.", hint="Letters, digits, dots, dashes, underscores.")
    if name in (*bundled, *BUILT_IN, NO_DRAFTER):
        raise UsageError(f"{name} means something else already.", hint="Take another name.")
    if target in bundled:
        raise UsageError(f"{target} comes with gencli and needs no other name.")
    if target in aliases:
        raise UsageError(f"{target} is itself an alias.", hint=f"Give what it stands for: {aliases[target]}")
    if other := next((alias for alias, old in aliases.items() if old == name), None):
        raise UsageError(f"The alias {other} stands for {name}.", hint="Take another name.")
    path = Path(os.path.expanduser(target))
    if path.is_dir() or (is_gguf(path) and path.is_file()):
        target = (
            os.path.abspath(path) if is_gguf(path) else str(path.resolve())
        )  # blobs of the hub have no suffix
    elif read_hub_name(target) is None:
        raise UsageError(f"{target!r} is neither a folder nor a GGUF file nor the name of a model.")
    _write({**aliases, name: target})
    return target


def remove_alias(name: str) -> str:
    """Remove an alias; return its target. Raises UsageError for an unknown alias."""
    aliases = read_aliases()
    if name not in aliases:
        raise UsageError(f"There is no alias {name!r}.", hint="gencli models alias lists them.")
    target = aliases.pop(name)
    _write(aliases)
    return target


def _write(aliases: Mapping[str, str]) -> None:
    path = alias_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as file:
            file.write(json.dumps(dict(sorted(aliases.items())), indent=2).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
