"""Regular files, read up to a size limit and written without following links, and the lock file next to an
output, which the system releases when its process ends.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copymode
from typing import BinaryIO

from gencli.errors import UsageError

MAX_PROMPT = 64 << 20  # bytes of a prompt, from a file, a pipe or stdin
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a writer does not block
_BINARY = getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # flag of os.open: fail for a link
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | _BINARY


def open_regular(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a regular file for reading, or with `pipes` a pipe. Raises OSError with a reason."""
    is_pipe = pipes and stat.S_ISFIFO(os.stat(path).st_mode)
    handle = os.open(path, os.O_RDONLY | _BINARY | (0 if is_pipe else _NO_WAIT))
    try:
        if not is_pipe:
            check_regular(handle, "a file or a pipe" if pipes else "a regular file")
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_regular(handle: int, expected: str = "a regular file") -> None:
    """Raise OSError with a reason unless an open file is a regular one."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, but has to be {expected}")


def other_kind(path: Path) -> str:
    """Return what a path is instead of a regular file, as in "a pipe"; "" for a file, or if it is absent."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "a link to nothing" if path.is_symlink() else ""
    return "" if stat.S_ISREG(mode) else _kind(mode)


def _kind(mode: int) -> str:
    return next((name for test, name in _KINDS if test(mode)), "no file")


def read_file(path: Path, limit: int, *, pipes: bool = False) -> bytes:
    """Return the content of a file of at most `limit` bytes. Raises OSError with a reason.

    `pipes`: allow a pipe such as a shell's <(...), for paths given by the user, not for paths in files.
    """
    with open_regular(path, pipes=pipes) as file:
        return read_stream(file, limit)


def read_stream(stream: BinaryIO, limit: int) -> bytes:
    """Return all bytes of a stream. Raises OSError if they are more than `limit`."""
    content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes")
    return content


def new_file(path: Path, mode: int = 0o666) -> int:
    """Create an empty file and return its handle. An old file is removed; a link is not followed."""
    with suppress(FileNotFoundError):
        path.unlink()
    return os.open(path, _NEW, mode)


def beside(path: Path) -> Path:
    """Return the temporary path of a file, used until the file is complete."""
    return path.with_name(f".{path.name}.part")


@contextmanager
def replaced(path: Path, *, pipes: bool = True) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` atomically after the block; an exception leaves `path` unchanged.

    If `path` is a link, its target is replaced. A device or a pipe is written directly, or with `pipes` =
    False refused, because a pipe without a reader blocks. Raises OSError.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        if not pipes:
            open_regular(path).close()
        with path.open("wb") as file:
            yield file
        return
    part = beside(path)
    try:
        with os.fdopen(new_file(part), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            copymode(path, part)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a rename to disk, if the system can sync folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_LOCKED_BYTE = 4096  # offset that Windows locks, after the owner's name, because locked bytes are unreadable


def lock_path(output: Path) -> Path:
    """Return the path of an output's lock file."""
    return output.with_name(f"{output.name}.lock")


@contextmanager
def locked(output: Path, *, work: str = "", hint: str = "Wait until it has ended.") -> Iterator[None]:
    """Hold the output's lock inside the block. Raises UsageError with the process that holds it.

    `work`: that process's work, `hint`: the way out, for the message. The lock belongs to the open file, so a
    killed process releases it; its lock file remains, and contains the owner's name.
    """
    path = lock_path(output)
    handle = _open_locked(path, work or f"{output.name} is being written", hint)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove an open file; the next run reuses it
            path.unlink()
        os.close(handle)


def _open_locked(path: Path, work: str, hint: str) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | _BINARY, 0o644)
            check_regular(handle)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
        try:
            _lock(handle)
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace")
            os.close(handle)
            if isinstance(error, BlockingIOError | PermissionError):
                raise UsageError(f"{work} by {owner or 'another process'}.", hint=hint) from None
            raise UsageError(
                f"{path} cannot be locked: {error.strerror or error}.",
                hint="Some network file systems have no locks; write to a local disk.",
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
        os.close(handle)  # the owner removed it between open and lock


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
