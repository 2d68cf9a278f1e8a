"""`GrammarStore`: compiled grammars in a folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["GrammarStore"]

_DIGEST = hashlib.sha256


class GrammarStore:
    """Files named by key, each a digest followed by the content; beyond `limit` bytes the oldest are deleted.

    The digest detects corruption. It is no protection from a writer of the folder, who is trusted.
    """

    def __init__(self, folder: Path, *, limit: int = 1 << 30) -> None:
        self._folder, self._limit = folder, limit

    def get(self, key: str) -> bytes | None:
        """Return the content; None if the file is missing or corrupt."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        size = _DIGEST().digest_size
        digest, content = data[:size], data[size:]
        if _DIGEST(content).digest() != digest:
            return None
        with suppress(OSError):
            os.utime(path)  # marks it as recently used
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store the content; without effect if the folder is not writable."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part", delete=False) as file:
                file.write(_DIGEST(content).digest() + content)
            os.replace(file.name, self._path(key))
            self._tidy()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.grammar"

    def _tidy(self) -> None:
        files = [(path.stat(), path) for path in self._folder.glob("*.grammar")]
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size
