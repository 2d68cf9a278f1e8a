"""Where models lie on this machine: bundled, in the hub's cache, in a folder. Imports nothing heavy."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from gencli.errors import ConfigError, ModelError
from gencli.hub.cache import find_snapshot, hub_models
from gencli.hub.names import read_hub_name
from gencli.models.aliases import read_aliases
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
    """The folder of a bundled model."""
    return Path(str(files("gencli") / "assets" / name))


def is_bundled(name: str) -> bool:
    """Whether a name or folder is that of a bundled model, whose files are as trusted as gencli itself."""
    return name in BUNDLED or Path(name) in [bundled_folder(bundled) for bundled in BUNDLED]


def full_name(name: str) -> str:
    """What an alias stands for; other names are their own. No alias stands for a bundled model's name."""
    return name if name in BUNDLED or "/" in name else read_aliases().get(name, name)


def find_local(name: str) -> Path | None:
    """The folder of a bundled model, an alias, a folder's path, or a hub name in the cache."""
    name = full_name(name)
    if name in BUNDLED:
        return None if name == "fake" else bundled_folder(name)
    with suppress(RuntimeError):  # a home that is not known
        path = Path(name).expanduser()
        if path.is_dir():
            return path
    hub = read_hub_name(name)
    return None if hub is None else find_snapshot(hub)


def absent(name: str) -> ModelError:
    """The error for a model that is not on this machine."""
    target = full_name(name)
    said = name if target == name else f"{name} ({target})"
    if target.endswith(".gguf"):
        return ModelError(f"There is no file {said}.", hint="Give a folder of *.safetensors, no GGUF.")
    if target.startswith((".", "/", "~")) or target.count("/") > 1:
        return ModelError(f"There is no folder {said}.")
    guess = did_you_mean([repr(close) for close in near_names(name)])
    pull = f"gencli models pull {target} fetches it from the hub."
    if read_hub_name(target) is None:
        pull = "Models of the hub are named as in org/name or org/name@revision."
    hint = guess if guess and "/" not in target else f"{pull} {guess}".strip()
    return ModelError(f"{said} is neither a folder nor a model on this machine.", hint=hint)


def near_names(name: str) -> list[str]:
    """Models on this machine that may be meant; a looser guess than at options, as names are few."""
    return close_names(name, local_names(), more=1)


def local_names() -> list[str]:
    """What can be given to --model without a path."""
    aliases: dict[str, str] = {}
    with suppress(ConfigError):  # is said where an alias is needed
        aliases = read_aliases()
    return [*BUNDLED, *aliases, *(name for name, _ in hub_models())]
