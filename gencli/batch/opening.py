"""Byte streams of files, URLs and stdin: decompressed, and copied to a temporary file if needed."""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from gencli.batch.extras import INSTALL, need_pyarrow
from gencli.errors import UsageError
from gencli.files import open_regular

__all__ = ["COMPRESSED", "is_damage", "open_local", "open_url", "remote_files", "spool", "unpacked"]

COMPRESSED = (".gz", ".zst")
_TIMEOUT = 60.0  # seconds without a byte


def open_local(path: Path) -> BinaryIO:
    """Open a local file or a pipe. Raises UsageError."""
    try:
        return open_regular(path, pipes=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def open_url(url: str) -> BinaryIO:
    """Open a URL: HTTP with the standard library, other schemes with fsspec. Raises UsageError."""
    try:
        if url.startswith(("http://", "https://")):
            response = urlopen(Request(url, headers={"User-Agent": "gencli"}), timeout=_TIMEOUT)
            return io.BufferedReader(_Download(response, url))
        import fsspec

        return cast(BinaryIO, fsspec.open(url, "rb").open())
    except (ImportError, ValueError) as error:
        raise _no_driver(url, error) from error
    except URLError as error:
        raise UsageError(f"{url} cannot be read: {error.reason}.") from error
    except Exception as error:  # each driver has its own exceptions
        raise UsageError(f"{url} cannot be read: {error or type(error).__name__}.") from error


def remote_files(url: str) -> list[str]:
    """Return the sorted files of a URL that is a folder or pattern; otherwise the URL itself."""
    if url.startswith(("http://", "https://")):
        return [url]
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
        is_pattern = any(char in path for char in "*?[")
        if not is_pattern and not system.isdir(path):
            return [url]
        found = system.glob(path) if is_pattern else system.find(path)
        return [system.unstrip_protocol(one) for one in sorted(found) if system.isfile(one)]
    except (ImportError, ValueError) as error:
        raise _no_driver(url, error) from error
    except Exception as error:  # each driver has its own exceptions
        raise UsageError(f"{url} cannot be listed: {error or type(error).__name__}.") from error


def _no_driver(url: str, error: Exception) -> UsageError:
    scheme = url.partition("://")[0]
    hint = f"{str(error).rstrip('.')}." if isinstance(error, ImportError) else ""
    return UsageError(f"There is no driver for {scheme}:// ({url}).", hint=hint or INSTALL)


class _Download(io.RawIOBase):
    """The body of a response. Raises UsageError if the connection ends before the body."""

    def __init__(self, response: Any, url: str) -> None:
        self._response, self._url = response, url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = int(self._response.readinto(buffer))
        except OSError as error:
            raise UsageError(f"{self._url} cannot be read further: {error}.") from error
        if not size and self._response.length:
            raise UsageError(
                f"{self._url} cannot be read further: {self._response.length} bytes are missing."
            )
        return size

    def close(self) -> None:
        self._response.close()
        super().close()


@contextmanager
def unpacked(opened: Callable[[], BinaryIO], suffix: str, name: str, *, seekable: bool) -> Iterator[BinaryIO]:
    """Open the stream, decompressed by its suffix; `seekable`: copied to a temporary file if needed."""
    with ExitStack() as stack:
        stream = stack.enter_context(opened())
        if suffix == ".gz":
            stream = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=stream)))
        elif suffix == ".zst":
            need_pyarrow(name)
            import pyarrow as pa

            packed = stack.enter_context(pa.CompressedInputStream(stream, "zstd"))
            stream = cast(BinaryIO, stack.enter_context(io.BufferedReader(packed)))
        if seekable and (suffix or not stream.seekable()):
            stream = stack.enter_context(spool(stream))
        yield stream


def is_damage(error: Exception) -> bool:
    """Return whether a reading error comes from truncated or damaged compressed data."""
    return isinstance(error, EOFError | zlib.error) or (isinstance(error, OSError) and error.errno is None)


def spool(stream: BinaryIO) -> BinaryIO:
    """Return a temporary file with the content of the stream, positioned at its start."""
    file = cast(BinaryIO, tempfile.TemporaryFile(prefix="gencli-"))  # noqa: SIM115 - the caller closes it
    try:
        shutil.copyfileobj(stream, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file
