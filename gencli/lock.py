"""A lock file next to an output. The system releases the lock when its process ends."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gencli.errors import UsageError
from gencli.files import NO_LINK, check_regular

__all__ = ["lock_path", "locked"]

_BINARY = getattr(os, "O_BINARY", 0)
_LOCKED_BYTE = 4096  # offset that Windows locks, after the owner's name, because locked bytes are unreadable


def lock_path(output: Path) -> Path:
    """Return the path of an output's lock file."""
    return output.with_name(f"{output.name}.lock")


@contextmanager
def locked(output: Path, *, what: str = "", hint: str = "Wait until it has ended.") -> Iterator[None]:
    """Hold the output's lock inside the block. Raises UsageError with the process that holds it.

    `what`: that process's work, `hint`: the way out, for the message. The lock belongs to the open file, so a
    killed process releases it; its lock file remains, and contains the owner's name.
    """
    path = lock_path(output)
    handle = _open_locked(path, what or f"{output.name} is being written", hint)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove an open file; the next run reuses it
            path.unlink()
        os.close(handle)


def _open_locked(path: Path, what: str, hint: str) -> int:
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
            raise _refusal(path, f"{what} by {owner or 'another process'}.", hint, error) from None
        if _is_current(path, handle):
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


def _is_current(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _refusal(path: Path, message: str, hint: str, error: OSError) -> UsageError:
    if isinstance(error, BlockingIOError | PermissionError):
        return UsageError(message, hint=hint)
    return UsageError(
        f"{path} cannot be locked: {error.strerror or error}.",
        hint="Some network file systems have no locks; write to a local disk.",
    )
