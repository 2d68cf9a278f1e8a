"""The local cache of the hub: its models, and the files that they lack. Imports nothing heavy.

The layout is that of huggingface_hub: `models--ORG--NAME/` has `blobs/` (files by hash), `snapshots/COMMIT/`
(links to blobs) and `refs/` (files with the commit of a branch or tag).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gencli.errors import ModelError
from gencli.hub.gguf import choose_gguf, gguf_models
from gencli.hub.names import COMMIT, INDEX, MAIN, WEIGHTS, HubName
from gencli.lock import locked
from gencli.models.files.json_files import read_object_if_any

__all__ = [
    "UNFINISHED",
    "Cached",
    "cached_models",
    "disk_bytes",
    "endpoint",
    "find_file",
    "find_gguf",
    "find_snapshot",
    "hub_cache",
    "hub_models",
    "hub_name",
    "is_offline",
    "missing_files",
    "repository_folder",
    "repository_lock",
]

_FOLDER = re.compile(r"[0-9A-Za-z]{1,64}")  # name of a snapshot's folder
_TRUE = ("1", "ON", "YES", "TRUE")
UNFINISHED = ".incomplete"  # suffix of an incomplete blob
_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class Cached:
    """A snapshot in the cache, or a GGUF file in one, or an unfinished download (`folder` is None).

    `place` is the folder of the model's repository. `missing` are needed files that are absent;
    `unfinished` are the bytes of incomplete files.
    """

    name: str
    place: Path
    folder: Path | None
    missing: tuple[str, ...]
    unfinished: int

    @property
    def is_partial(self) -> bool:
        """Whether the model cannot be loaded yet."""
        return self.folder is None or bool(self.missing)


def hub_cache() -> Path:
    """Return the folder of the hub's cache, as huggingface_hub determines it."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface").expanduser()
    return home / "hub"


def endpoint() -> str:
    """Return the address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline() -> str | None:
    """Return the environment variable that keeps the libraries offline; None if none does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if value := os.environ.get(name):
            return f"{name}={value}" if value.upper() in _TRUE else None
    return None


def repository_folder(name: HubName) -> Path:
    """Return the folder of a repository in the cache."""
    return hub_cache() / (_PREFIX + name.repo.replace("/", "--"))


def repository_lock(name: HubName) -> AbstractContextManager[None]:
    """Hold the lock of a repository. Raises UsageError if another process fetches or removes it."""
    lock = hub_cache() / ".locks" / repository_folder(name).name / "gencli"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return locked(lock, what=f"{name} is being fetched", hint="Wait until it is complete.")


def hub_name(folder: Path) -> str | None:
    """Return the name of the model whose snapshot is in a folder; None for a folder outside a hub cache."""
    repository = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and repository.name.startswith(_PREFIX)
    return _repo(repository) if is_snapshot else None


def find_snapshot(name: HubName) -> Path | None:
    """Return the folder of a model's revision, complete or not; None if it has no configuration."""
    folder = _snapshot(name)
    return folder if folder is not None and (folder / "config.json").is_file() else None


def find_file(name: HubName, file: str) -> Path | None:
    """Return a top-level file of a repository's revision; None if it is not in the cache."""
    folder = _snapshot(name)
    return folder / file if folder is not None and "/" not in file and (folder / file).is_file() else None


def find_gguf(name: HubName) -> Path | None:
    """Return the first file of the GGUF model selected by a name; None if it is not in the cache.

    Raises ModelError if the cache has several.
    """
    folder = _snapshot(name)
    files = [path.name for path in folder.glob("*") if path.exists()] if folder is not None else []
    found = choose_gguf(files, name.gguf)
    if len(found) > 1:
        raise ModelError(f"{name} may be any of {', '.join(found)}.", hint="Give the name of one file.")
    return folder / next(iter(found)) if folder is not None and found else None


def _snapshot(name: HubName) -> Path | None:
    repository = repository_folder(name)
    commit = name.revision if COMMIT.fullmatch(name.revision) else _ref(repository / "refs" / name.revision)
    return repository / "snapshots" / commit if commit else None


def hub_models() -> Iterator[tuple[str, Path]]:
    """Yield name and folder of each snapshot in the cache with a configuration, and GGUF files, by name."""
    for model in cached_models():
        place = model.folder
        if place is not None and (place.is_file() or (place / "config.json").is_file()):
            yield model.name, place


def cached_models() -> Iterator[Cached]:
    """Yield all snapshots in the cache, and downloads without one, sorted by name."""
    cache = hub_cache()
    for repository in sorted(cache.glob(f"{_PREFIX}*")) if cache.is_dir() else ():
        if repository.is_dir():
            yield from _snapshots(repository)


def _snapshots(repository: Path) -> Iterator[Cached]:
    repo, refs = _repo(repository), _refs(repository)
    unfinished = sum(path.stat().st_size for path in repository.glob(f"blobs/*{UNFINISHED}"))
    folders = [folder for folder in sorted(repository.glob("snapshots/*")) if folder.is_dir()]
    for folder in folders:
        names = refs.get(folder.name, [folder.name])
        for revision in names:
            files = gguf_models(path.name for path in folder.iterdir() if path.exists())
            for first in files:
                name = str(HubName(repo, revision, first))
                yield Cached(name, repository, folder / first, (), unfinished)
            if not files or (folder / "config.json").is_file():
                name = str(HubName(repo, revision))
                yield Cached(name, repository, folder, missing_files(folder), unfinished)
    if not folders:
        yield Cached(repo, repository, None, (), unfinished)


def missing_files(folder: Path, *, with_code: bool = False) -> tuple[str, ...]:
    """Return the required files that a model folder lacks, as far as its own files list them.

    `with_code` includes the model's own Python modules.
    """
    if not (folder / "config.json").is_file():
        return ("config.json",)
    if (folder / WEIGHTS).is_file():
        needed = []
    elif (folder / INDEX).is_file():
        shards = read_object_if_any(folder / INDEX).get("weight_map")
        needed = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else [INDEX]
    else:
        is_pickle = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        needed = [] if is_pickle else [WEIGHTS]  # pickles are complete, although they cannot be loaded
    if with_code:
        needed += _code(folder)
    broken = [path.name for path in folder.iterdir() if path.is_symlink() and not path.exists()]
    return tuple(dict.fromkeys([*(name for name in needed if not (folder / name).is_file()), *broken]))


def _code(folder: Path) -> list[str]:
    """Return the model's own Python modules listed in its configuration."""
    named = read_object_if_any(folder / "config.json").get("auto_map")
    texts = named.values() if isinstance(named, dict) else ()
    own = (text for text in texts if isinstance(text, str) and "--" not in text)
    return sorted({f"{text.partition('.')[0]}.py" for text in own})


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    stats = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(stat.st_size for stat in stats)


def _repo(repository: Path) -> str:
    return repository.name.removeprefix(_PREFIX).replace("--", "/")


def _refs(repository: Path) -> dict[str, list[str]]:
    """Return the branches and tags of each commit, `main` first."""
    refs: dict[str, list[str]] = {}
    for path in sorted(repository.glob("refs/**/*")):
        if commit := _ref(path):
            refs.setdefault(commit, []).append(path.relative_to(repository / "refs").as_posix())
    return {commit: sorted(names, key=lambda name: name != MAIN) for commit, names in refs.items()}


def _ref(path: Path) -> str:
    """Return the commit of a branch or tag; "" if the file does not name one."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(100).strip()
    except (OSError, ValueError):
        return ""
    return text if _FOLDER.fullmatch(text) else ""
