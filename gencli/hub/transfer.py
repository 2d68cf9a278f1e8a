"""One file from the hub: resumed where it was interrupted, and kept only if its hash is right."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import sha1, sha256
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from gencli import __version__
from gencli.errors import ModelError
from gencli.hub.cache import UNFINISHED, endpoint
from gencli.hub.failures import FAILURES, TRIES, explain, pause
from gencli.hub.listing import Listing, RemoteFile

__all__ = ["Stopped", "Transfer"]

_CHUNK = 2**20  # bytes that are hashed at once
_RANGE = re.compile(r"bytes (\d{1,18})-")
_NO_FOLLOW, _BINARY = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_BINARY", 0)


class Stopped(Exception):
    """Another file of the model has failed."""


class _CutShort(Exception):
    """The answer ended before the file did."""


class _Part:
    """What there is of a file, and its hash so far. `on_bytes` is told what it gains or loses."""

    def __init__(self, stream: BinaryIO, file: RemoteFile, on_bytes: Callable[[int], None]) -> None:
        self._stream, self._file, self._on_bytes = stream, file, on_bytes
        self.done = os.fstat(stream.fileno()).st_size
        if self.done > file.size:
            self.done = file.size  # as it was counted
            self.restart()
        self._digest = self._new_digest()
        while chunk := stream.read(_CHUNK):
            self._digest.update(chunk)

    @property
    def is_right(self) -> bool:
        """Whether it has the hash that the hub states."""
        return bool(self._digest.hexdigest() == self._file.blob)

    def add(self, chunk: bytes) -> None:
        """Append bytes."""
        self._stream.write(chunk)
        self._stream.flush()  # what a killed process had is gone on with
        self._digest.update(chunk)
        self.done += len(chunk)
        self._on_bytes(len(chunk))

    def restart(self) -> None:
        """Drop all of it."""
        self._stream.seek(0)
        self._stream.truncate()
        self._on_bytes(-self.done)
        self.done, self._digest = 0, self._new_digest()

    def _new_digest(self) -> Any:
        if len(self._file.blob) == 64:
            return sha256()
        return sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)  # git's name of a file


class Transfer:
    """Fetches files of a listing into a folder of blobs.

    `on_bytes` is told what a file gains, or loses where it begins anew. `stop` ends all transfers.
    """

    def __init__(self, listing: Listing, blobs: Path, on_bytes: Callable[[int], None], stop: Event) -> None:
        self._listing, self._blobs, self._on_bytes, self._stop = listing, blobs, on_bytes, stop

    def fetch(self, file: RemoteFile) -> None:
        """Fetch a file. Raises ModelError where that fails; what is there by then is kept."""
        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise ModelError(
                f"{file.path} of {self._listing.name} is larger than the hub sends in one piece.",
                hint=f"hf download {self._listing.name.repo} fetches it in parts.",
            )
        path = self._blobs / f"{file.blob}{UNFINISHED}"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _BINARY, 0o644)
            with os.fdopen(handle, "r+b") as stream:
                part = _Part(stream, file, self._on_bytes)
                had_some = part.done > 0
                self._fill(part, file)
                if not part.is_right and had_some:  # what was there may have been another program's
                    part.restart()
                    self._fill(part, file)
            if not part.is_right:
                path.unlink()
                raise ModelError(
                    f"{file.path} of {self._listing.name} does not have the hash that the hub states.",
                    hint="Nothing of it is kept. If it stays so, the hub or a proxy changes the file.",
                )
            path.replace(self._blobs / file.blob)
        except OSError as error:
            raise ModelError(f"{path} cannot be written: {error.strerror or error}.") from error

    def _fill(self, part: _Part, file: RemoteFile) -> None:
        attempt, furthest = 0, part.done
        while part.done < file.size:
            try:
                self._read_on(part, file)
            except (*FAILURES, _CutShort) as error:
                attempt = 0 if part.done > furthest else attempt + 1
                furthest = max(furthest, part.done)
                seconds = pause(error, attempt)
                if seconds is None or attempt == TRIES:
                    raise explain(error, self._listing.name) from error
                if self._stop.wait(seconds):
                    raise Stopped from None

    def _read_on(self, part: _Part, file: RemoteFile) -> None:
        """Fetch what is missing, as far as one answer goes."""
        name = self._listing.name
        url = hf_hub_url(name.repo, file.path, revision=self._listing.commit, endpoint=endpoint())
        headers = build_hf_headers(library_name="gencli", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        if part.done:
            headers["Range"] = f"bytes={part.done}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        # The client drops the token where a redirect leaves the hub's address.
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code == 416:  # there is nothing from there on
                part.restart()
                raise _CutShort
            hf_raise_for_status(response)
            found = _RANGE.match(response.headers.get("Content-Range", ""))
            begin = int(found[1]) if found and response.status_code == 206 else 0
            if begin != part.done:
                part.restart()
            if begin != part.done:
                raise _CutShort
            for chunk in response.iter_bytes():
                if self._stop.is_set():
                    raise Stopped
                if part.done + len(chunk) > file.size:
                    raise ModelError(f"{file.path} of {name} is longer than the hub states.")
                part.add(chunk)
        if part.done < file.size:
            raise _CutShort
