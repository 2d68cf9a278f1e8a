"""Where models lie on this machine: bundled, in the hub's cache, in a folder. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

__all__ = ["BUNDLED", "bundled_folder", "find_local", "hub_cache", "hub_models", "is_bundled", "local_names"]

BUNDLED = ("tiny", "tiny-draft", "fake")


def bundled_folder(name: str) -> Path:
    """The folder of a bundled model."""
    return Path(str(files("gencli") / "assets" / name))


def is_bundled(name: str) -> bool:
    """Whether a name or folder is that of a bundled model, whose files are as trusted as gencli itself."""
    return name in BUNDLED or Path(name) in [bundled_folder(bundled) for bundled in BUNDLED]


def hub_cache() -> Path:
    """The hub's cache, as huggingface_hub finds it."""
    if found := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(found).expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface").expanduser()
    return home / "hub"


def hub_models() -> Iterator[tuple[str, Path]]:
    """Name and folder of each model in the hub's cache that has a configuration, by name."""
    cache = hub_cache()
    for place in sorted(cache.glob("models--*")) if cache.is_dir() else ():
        folder = _snapshot(place)
        if folder is not None and (folder / "config.json").is_file():
            yield place.name.removeprefix("models--").replace("--", "/"), folder


def find_local(name: str) -> Path | None:
    """The folder of a bundled model, a folder's path, or a hub name in the cache."""
    if name in BUNDLED and name != "fake":
        return bundled_folder(name)
    path = Path(name).expanduser()
    return path if path.is_dir() else dict(hub_models()).get(name)


def local_names() -> list[str]:
    """What can be given to --model without a path."""
    return [*BUNDLED, *(name for name, _ in hub_models())]


def _snapshot(place: Path) -> Path | None:
    """The revision that `main` points to, else the newest."""
    main = place / "refs" / "main"
    if main.is_file() and (folder := place / "snapshots" / main.read_text().strip()).is_dir():
        return folder
    found = [folder for folder in place.glob("snapshots/*") if folder.is_dir()]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)
