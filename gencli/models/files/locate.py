"""Locate models on this machine: bundled, in the hub's cache, or in a folder. Imports nothing heavy."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from gencli.errors import ConfigError, ModelError
from gencli.hub.cache import find_snapshot, hub_models
from gencli.hub.names import read_hub_name
from gencli.models.files.aliases import read_aliases
from processors.names import close_names, did_you_mean

__all__ = [
    "BUNDLED",
    "absent",
    "bundled_folder",
    "find_local",
    "full_name",
    "is_bundled",
    "local_names",
    "near_names",
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
    """Return the folder of a bundled model, an alias, a path, or a hub name in the cache; None if absent."""
    name = full_name(name)
    if name in BUNDLED:
        return None if name == "fake" else bundled_folder(name)
    with suppress(RuntimeError):  # the home folder is unknown
        path = Path(name).expanduser()
        if path.is_dir():
            return path
    hub = read_hub_name(name)
    return None if hub is None else find_snapshot(hub)


def absent(name: str) -> ModelError:
    """Return the error for a model that is not on this machine."""
    target = full_name(name)
    shown = name if target == name else f"{name} ({target})"
    if target.endswith(".gguf"):
        return ModelError(f"There is no file {shown}.", hint="Give a folder of *.safetensors, no GGUF.")
    if target.startswith((".", "/", "~")) or target.count("/") > 1:
        return ModelError(f"There is no folder {shown}.")
    guess = did_you_mean([repr(close) for close in near_names(name)])
    pull = f"gencli models pull {target} fetches it from the hub."
    if read_hub_name(target) is None:
        pull = "Models of the hub are named as in org/name or org/name@revision."
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
