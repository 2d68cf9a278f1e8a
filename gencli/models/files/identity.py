"""Which model it was: its name, its revision on the hub, and a SHA-256 of its weights.

The SHA-256 of one weight file is the file's own, as `sha256sum` prints it; of several it is that of the lines
which `sha256sum *.safetensors` prints for them. A snapshot in the hub's cache stores large files under their
SHA-256, so nothing is read there; other files are read once and their hashes kept in the user's cache.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gencli.files import read_file, replaced
from gencli.hub.cache import hub_name
from gencli.models.files.checkpoint import weight_files
from gencli.models.files.locate import find_local
from gencli.models.watch import OnBytes

__all__ = ["ModelIdentity", "identify", "identify_model"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 2**22  # bytes
_MOST, _LARGEST = 1000, 2**22  # hashes that are kept, and bytes of their file
_FRESH = 2 * 10**9  # ns; a file this young may change again without a change of its times


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A model as others can check it. `revision` is the hub's commit; None for other folders."""

    name: str
    revision: str | None
    sha256: str


def identify_model(name: str, on_bytes: OnBytes | None = None) -> ModelIdentity | None:
    """The identity of a model by name; None for `fake`, and for one that is not on this machine."""
    folder = None if name == "fake" else find_local(name)
    return None if folder is None else identify(folder, on_bytes)


def identify(folder: Path, on_bytes: OnBytes | None = None) -> ModelIdentity:
    """The identity of a model folder. Raises ModelError where weights are missing.

    `on_bytes` is called with the bytes that are hashed and all that have to be.
    """
    files = sorted(weight_files(folder), key=lambda path: path.name)
    hashes = dict(_hashes(files, on_bytes))
    if len(hashes) == 1:
        (digest,) = hashes.values()
    else:
        lines = "".join(f"{hashes[path]}  {path.name}\n" for path in files)
        digest = sha256(lines.encode()).hexdigest()
    name = hub_name(folder)
    return ModelIdentity(name or folder.resolve().name, folder.name if name else None, digest)


def _hashes(files: list[Path], on_bytes: OnBytes | None) -> Iterator[tuple[Path, str]]:
    kept = _Kept.read()
    unknown = []
    for path in files:
        if found := _stored_name(path) or kept.find(path):
            yield path, found
        else:
            unknown.append(path)
    total, done = sum(path.stat().st_size for path in unknown), 0
    if unknown and on_bytes is not None:
        on_bytes(0, total)
    for path in unknown:
        before, digest = path.stat(), sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_bytes is not None:
                    on_bytes(done, total)
        kept.add(path, before, digest.hexdigest())
        yield path, digest.hexdigest()
    if unknown:
        kept.write()


def _stored_name(path: Path) -> str | None:
    """The SHA-256 under which the hub's cache stores a file of a snapshot."""
    if not path.is_symlink() or hub_name(path.parent) is None:
        return None
    # One step only: a blob may itself be a link to a store that names files by another hash.
    blob = Path(os.path.normpath(path.parent / os.readlink(path)))
    is_blob = blob.parent == path.parent.parent.parent / "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if is_blob else None


class _Kept:
    """Hashes of files that were read before, by path, as long as size, times and inode are the same."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        self._path, self._entries = path, entries

    @classmethod
    def read(cls) -> _Kept:
        """Those in the user's cache; none where it cannot be read."""
        from platformdirs import user_cache_path

        path, entries = user_cache_path("gencli") / "weights.json", None
        with suppress(OSError, ValueError):
            entries = json.loads(read_file(path, _LARGEST))
        return cls(path, entries if isinstance(entries, dict) else {})

    def find(self, path: Path) -> str | None:
        """The hash of an unchanged file."""
        match self._entries.get(str(path.resolve())):
            case [list(stamp), str(digest)] if stamp == _stamp(path.stat()) and _SHA256.fullmatch(digest):
                return digest
        return None

    def add(self, path: Path, before: os.stat_result, digest: str) -> None:
        """Keep a hash, unless the file may have changed while it was read, or may change unseen."""
        after = path.stat()
        is_fresh = time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns) < _FRESH
        if _stamp(before) == _stamp(after) and not is_fresh:
            self._entries.pop(str(path.resolve()), None)
            self._entries[str(path.resolve())] = [_stamp(after), digest]

    def write(self) -> None:
        """Write all of them, the oldest dropped; what cannot be written is hashed again."""
        entries = dict(list(self._entries.items())[-_MOST:])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(self._path) as file:
                file.write(json.dumps(entries).encode())


def _stamp(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
