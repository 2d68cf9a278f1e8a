"""Identity of a model: its name, its revision on the hub, and a SHA-256 of its weights.

For one weight file the SHA-256 is that of the file, as `sha256sum` prints it. For several files it is the
SHA-256 of the output of `sha256sum *.safetensors`, or of all parts of a GGUF file. The hub's cache
stores large files under their SHA-256, so they are not read. Other
files are read once, and their hashes are stored in the user's cache.
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
from gencli.models.gguf.head import is_gguf, read_gguf_head
from gencli.models.watch import OnBytes

__all__ = ["ModelIdentity", "identify", "identify_model"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 2**22  # bytes
_MAX_ENTRIES, _MAX_BYTES = 1000, 2**22  # hashes in the user's cache, and the size of its file
_FRESH = 2 * 10**9  # ns; a younger file may change again with the same time stamps


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A verifiable model identity. `revision` is the hub's commit; None for other folders."""

    name: str
    revision: str | None
    sha256: str


def identify_model(name: str, on_bytes: OnBytes | None = None) -> ModelIdentity | None:
    """Return the identity of a model by name; None for `fake` and for models not on this machine."""
    folder = None if name == "fake" else find_local(name)
    return None if folder is None else identify(folder, on_bytes)


def identify(folder: Path, on_bytes: OnBytes | None = None) -> ModelIdentity:
    """Return the identity of a model folder or a GGUF file. Raises ModelError if weights are missing.

    `on_bytes` is called with the hashed bytes and the total bytes to hash.
    """
    if is_gguf(folder):
        files = list(read_gguf_head(folder).files)
        folder = files[0]
    else:
        files = sorted(weight_files(folder), key=lambda path: path.name)
    hashes = dict(_hashes(files, on_bytes))
    if len(hashes) == 1:
        (digest,) = hashes.values()
    else:
        lines = "".join(f"{hashes[path]}  {path.name}\n" for path in files)
        digest = sha256(lines.encode()).hexdigest()
    home = folder.parent if is_gguf(folder) else folder
    name = hub_name(home)
    return ModelIdentity(name or folder.resolve().name, home.name if name else None, digest)


def _hashes(files: list[Path], on_bytes: OnBytes | None) -> Iterator[tuple[Path, str]]:
    cache = _HashCache.read()
    unknown = []
    for path in files:
        if found := _stored_name(path) or cache.find(path):
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
        cache.add(path, before, digest.hexdigest())
        yield path, digest.hexdigest()
    if unknown:
        cache.write()


def _stored_name(path: Path) -> str | None:
    """Return the SHA-256 under which the hub's cache stores a snapshot file; None for other files."""
    if not path.is_symlink() or hub_name(path.parent) is None:
        return None
    # One step only: a blob may itself be a link to a store that names files by another hash.
    blob = Path(os.path.normpath(path.parent / os.readlink(path)))
    is_blob = blob.parent == path.parent.parent.parent / "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if is_blob else None


class _HashCache:
    """Cached hashes by path, valid while size, times and inode of the file are unchanged."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        self._path, self._entries = path, entries

    @classmethod
    def read(cls) -> _HashCache:
        """Read the user's cache; empty if it cannot be read."""
        from platformdirs import user_cache_path

        path, entries = user_cache_path("gencli") / "weights.json", None
        with suppress(OSError, ValueError):
            entries = json.loads(read_file(path, _MAX_BYTES))
        return cls(path, entries if isinstance(entries, dict) else {})

    def find(self, path: Path) -> str | None:
        """Return the hash of the file; None if it is unknown or the file has changed."""
        match self._entries.get(str(path.resolve())):
            case [list(stamp), str(digest)] if stamp == _stamp(path.stat()) and _SHA256.fullmatch(digest):
                return digest
        return None

    def add(self, path: Path, before: os.stat_result, digest: str) -> None:
        """Store a hash, unless the file may have changed during reading or may change unnoticed."""
        after = path.stat()
        is_fresh = time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns) < _FRESH
        if _stamp(before) == _stamp(after) and not is_fresh:
            self._entries.pop(str(path.resolve()), None)
            self._entries[str(path.resolve())] = [_stamp(after), digest]

    def write(self) -> None:
        """Write the newest entries. A failed write is ignored: the files are hashed again."""
        entries = dict(list(self._entries.items())[-_MAX_ENTRIES:])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(self._path, pipes=False) as file:
                file.write(json.dumps(entries).encode())


def _stamp(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
