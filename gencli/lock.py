"""Keeps two writers apart: a lock file beside the output, which the system lets go when its process dies."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gencli.errors import UsageError
from gencli.files import NO_LINK

__all__ = ["lock_path", "locked"]

_BINARY = getattr(os, "O_BINARY", 0)
_AWAY = 4096  # the byte that Windows locks, beyond the owner's name: a locked byte cannot be read there


def lock_path(output: Path) -> Path:
    """Return the lock of an output."""
    return output.with_name(f"{output.name}.lock")


@contextmanager
def locked(output: Path, *, what: str = "", hint: str = "Wait until it has ended.") -> Iterator[None]:
    """Hold the output's lock inside the block. Raises UsageError that names the process that has it.

    `what` says what that process does, `hint` what to do about it.
    The lock belongs to an open file, so that of a process that was killed is free; what stays is the file,
    which holds the name of its owner for messages.
    """
    path = lock_path(output)
    handle = _open_locked(path, what or f"{output.name} is being written", hint)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file; the next run takes it over
            path.unlink()
        os.close(handle)


def _open_locked(path: Path, what: str, hint: str) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | _BINARY, 0o644)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
        try:
            _lock(handle)
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace")
            os.close(handle)
            raise _refusal(path, f"{what} by {owner or 'another process'}.", hint, error) from None
        if _is_still_there(path, handle):
            return handle
        os.close(handle)  # its owner removed it between our two steps


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, _AWAY, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_still_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _refusal(path: Path, said: str, hint: str, error: OSError) -> UsageError:
    if isinstance(error, BlockingIOError | PermissionError):
        return UsageError(said, hint=hint)
    return UsageError(
        f"{path} cannot be locked: {error.strerror or error}.",
        hint="Some network file systems have no locks; write to a local disk.",
    )
