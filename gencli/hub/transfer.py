"""Downloads one file from the hub: resumed after an interruption, kept only if its hash is correct."""

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
from gencli.files import NO_LINK
from gencli.hub.cache import UNFINISHED, endpoint
from gencli.hub.failures import FAILURES, TRIES, explain, retry_delay
from gencli.hub.listing import Listing, RemoteFile

__all__ = ["Stopped", "Transfer"]

_CHUNK = 2**20  # bytes hashed at once
_RANGE = re.compile(r"bytes (\d{1,18})-")
_BINARY = getattr(os, "O_BINARY", 0)


class Stopped(Exception):
    """Another file of the model has failed."""


class _Truncated(Exception):
    """The reply ended before the end of the file."""


class _Part:
    """The downloaded part of a file and its hash. `on_bytes` is called with each change of its size."""

    def __init__(self, stream: BinaryIO, file: RemoteFile, on_bytes: Callable[[int], None]) -> None:
        self._stream, self._file, self._on_bytes = stream, file, on_bytes
        self.done = os.fstat(stream.fileno()).st_size
        if self.done > file.size:
            self.done = file.size  # the plan counted no more
            self.restart()
        self._digest = self._new_digest()
        while chunk := stream.read(_CHUNK):
            self._digest.update(chunk)

    @property
    def is_correct(self) -> bool:
        """Whether the part has the hash stated by the hub."""
        return bool(self._digest.hexdigest() == self._file.blob)

    def add(self, chunk: bytes) -> None:
        """Append bytes."""
        self._stream.write(chunk)
        self._stream.flush()  # after a kill, the next process continues here
        self._digest.update(chunk)
        self.done += len(chunk)
        self._on_bytes(len(chunk))

    def restart(self) -> None:
        """Drop the part."""
        self._stream.seek(0)
        self._stream.truncate()
        self._on_bytes(-self.done)
        self.done, self._digest = 0, self._new_digest()

    def _new_digest(self) -> Any:
        if len(self._file.blob) == 64:
            return sha256()
        return sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)  # git's hash of a file


class Transfer:
    """Downloads files of a listing into a folder of blobs.

    `on_bytes` is called with the bytes received, negative if a file restarts. `stop` ends all transfers.
    """

    def __init__(self, listing: Listing, blobs: Path, on_bytes: Callable[[int], None], stop: Event) -> None:
        self._listing, self._blobs, self._on_bytes, self._stop = listing, blobs, on_bytes, stop

    def fetch(self, file: RemoteFile) -> None:
        """Download a file. Raises ModelError if that fails; the part is kept."""
        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise ModelError(
                f"{file.path} of {self._listing.name} is larger than the hub sends in one piece.",
                hint=f"hf download {self._listing.name.repo} fetches it in parts.",
            )
        path = self._blobs / f"{file.blob}{UNFINISHED}"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | _BINARY, 0o644)
            with os.fdopen(handle, "r+b") as stream:
                part = _Part(stream, file, self._on_bytes)
                is_resumed = part.done > 0
                self._fill(part, file)
                if not part.is_correct and is_resumed:  # the old part may come from another program
                    part.restart()
                    self._fill(part, file)
            if not part.is_correct:
                path.unlink()
                raise ModelError(
                    f"{file.path} of {self._listing.name} does not have the hash that the hub states.",
                    hint="The file was removed. If this happens again, the hub or a proxy changes the file.",
                )
            path.replace(self._blobs / file.blob)
        except OSError as error:
            raise ModelError(f"{path} cannot be written: {error.strerror or error}.") from error

    def _fill(self, part: _Part, file: RemoteFile) -> None:
        attempt, furthest = 0, part.done
        while part.done < file.size:
            try:
                self._read(part, file)
            except (*FAILURES, _Truncated) as error:
                attempt = 0 if part.done > furthest else attempt + 1
                furthest = max(furthest, part.done)
                seconds = retry_delay(error, attempt)
                if seconds is None or attempt == TRIES:
                    raise explain(error, self._listing.name) from error
                if self._stop.wait(seconds):
                    raise Stopped from None

    def _read(self, part: _Part, file: RemoteFile) -> None:
        """Download the missing bytes, as far as one reply contains them."""
        name = self._listing.name
        url = hf_hub_url(name.repo, file.path, revision=self._listing.commit, endpoint=endpoint())
        headers = build_hf_headers(library_name="gencli", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        if part.done:
            headers["Range"] = f"bytes={part.done}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        # The client drops the token if a redirect leaves the hub's address.
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code == 416:  # the requested range is empty
                part.restart()
                raise _Truncated
            hf_raise_for_status(response)
            content_range = _RANGE.match(response.headers.get("Content-Range", ""))
            begin = int(content_range[1]) if content_range and response.status_code == 206 else 0
            if begin != part.done:
                part.restart()
            if begin != part.done:
                raise _Truncated
            for chunk in response.iter_bytes():
                if self._stop.is_set():
                    raise Stopped
                if part.done + len(chunk) > file.size:
                    raise ModelError(f"{file.path} of {name} is longer than the hub states.")
                part.add(chunk)
        if part.done < file.size:
            raise _Truncated
