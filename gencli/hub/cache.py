"""The hub's cache on this machine: which models are in it, and what they lack. Imports nothing heavy.

`models--ORG--NAME/` holds `blobs/` (files by their hash), `snapshots/COMMIT/` (links to them) and `refs/`
(files that name the commit of a branch or tag), as huggingface_hub lays them out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gencli.hub.names import COMMIT, INDEX, MAIN, WEIGHTS, HubName
from gencli.lock import locked
from gencli.models.files.json_files import read_object_if_any

__all__ = [
    "UNFINISHED",
    "Cached",
    "alone",
    "cached_models",
    "disk_bytes",
    "endpoint",
    "find_snapshot",
    "hub_cache",
    "hub_models",
    "hub_name",
    "is_offline",
    "missing_files",
    "place_of",
]

_FOLDER = re.compile(r"[0-9A-Za-z]{1,64}")  # of a snapshot
_TRUE = ("1", "ON", "YES", "TRUE")
UNFINISHED = ".incomplete"  # the end of a blob that is not complete
_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class Cached:
    """A snapshot, or a download that has none yet (`folder` is None).

    `missing` are files that it needs and lacks; `unfinished` are bytes of files that are not complete.
    """

    name: str
    place: Path
    folder: Path | None
    missing: tuple[str, ...]
    unfinished: int

    @property
    def is_partial(self) -> bool:
        """Whether it cannot be loaded yet."""
        return self.folder is None or bool(self.missing)


def hub_cache() -> Path:
    """Return the hub's cache, as huggingface_hub finds it."""
    if found := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(found).expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface").expanduser()
    return home / "hub"


def endpoint() -> str:
    """Return the address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline() -> str | None:
    """Return the variable that keeps the libraries off the network; None where none does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if value := os.environ.get(name):
            return f"{name}={value}" if value.upper() in _TRUE else None
    return None


def place_of(name: HubName) -> Path:
    """Return the folder of a repository in the cache."""
    return hub_cache() / (_PREFIX + name.repo.replace("/", "--"))


def alone(name: HubName) -> AbstractContextManager[None]:
    """Hold the lock of a repository; UsageError where another process fetches or removes it."""
    lock = hub_cache() / ".locks" / place_of(name).name / "gencli"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return locked(lock, what=f"{name} is being fetched", hint="Wait until it is there.")


def hub_name(folder: Path) -> str | None:
    """Return the name of the model whose snapshot a folder is; None for one that lies in no hub cache."""
    place = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and place.name.startswith(_PREFIX)
    return _repo(place) if is_snapshot else None


def find_snapshot(name: HubName) -> Path | None:
    """Return the folder of a model's revision, complete or not; None where it has no configuration."""
    place = place_of(name)
    commit = name.revision if COMMIT.fullmatch(name.revision) else _ref(place / "refs" / name.revision)
    folder = place / "snapshots" / commit
    return folder if commit and (folder / "config.json").is_file() else None


def hub_models() -> Iterator[tuple[str, Path]]:
    """Name and folder of each snapshot in the cache that has a configuration, by name."""
    for found in cached_models():
        if found.folder is not None and (found.folder / "config.json").is_file():
            yield found.name, found.folder


def cached_models() -> Iterator[Cached]:
    """Yield all snapshots in the cache, and downloads that have none yet, by name."""
    cache = hub_cache()
    for place in sorted(cache.glob(f"{_PREFIX}*")) if cache.is_dir() else ():
        if place.is_dir():
            yield from _of_place(place)


def _of_place(place: Path) -> Iterator[Cached]:
    repo, refs = _repo(place), _refs(place)
    unfinished = sum(path.stat().st_size for path in place.glob(f"blobs/*{UNFINISHED}"))
    folders = [folder for folder in sorted(place.glob("snapshots/*")) if folder.is_dir()]
    for folder in folders:
        names = refs.get(folder.name, [folder.name])
        for revision in names:
            yield Cached(str(HubName(repo, revision)), place, folder, missing_files(folder), unfinished)
    if not folders:
        yield Cached(repo, place, None, (), unfinished)


def missing_files(folder: Path, *, with_code: bool = False) -> tuple[str, ...]:
    """What a model folder needs and lacks, as far as its files name it; with the code that it brings, too."""
    if not (folder / "config.json").is_file():
        return ("config.json",)
    if (folder / WEIGHTS).is_file():
        needed = []
    elif (folder / INDEX).is_file():
        shards = read_object_if_any(folder / INDEX).get("weight_map")
        needed = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else [INDEX]
    else:
        is_pickle = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        needed = [] if is_pickle else [WEIGHTS]  # what cannot be loaded is no less complete
    if with_code:
        needed += _code(folder)
    broken = [path.name for path in folder.iterdir() if path.is_symlink() and not path.exists()]
    return tuple(dict.fromkeys([*(name for name in needed if not (folder / name).is_file()), *broken]))


def _code(folder: Path) -> list[str]:
    """Return the modules of the model's own that its configuration names."""
    named = read_object_if_any(folder / "config.json").get("auto_map")
    texts = named.values() if isinstance(named, dict) else ()
    own = (text for text in texts if isinstance(text, str) and "--" not in text)
    return sorted({f"{text.partition('.')[0]}.py" for text in own})


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    found = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(stat.st_size for stat in found)


def _repo(place: Path) -> str:
    return place.name.removeprefix(_PREFIX).replace("--", "/")


def _refs(place: Path) -> dict[str, list[str]]:
    """Return the branches and tags of each commit, `main` first."""
    found: dict[str, list[str]] = {}
    for path in sorted(place.glob("refs/**/*")):
        if commit := _ref(path):
            found.setdefault(commit, []).append(path.relative_to(place / "refs").as_posix())
    return {commit: sorted(names, key=lambda name: name != MAIN) for commit, names in found.items()}


def _ref(path: Path) -> str:
    """Return the commit that a branch or tag is at; "" where that is not known."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(100).strip()
    except (OSError, ValueError):
        return ""
    return text if _FOLDER.fullmatch(text) else ""
