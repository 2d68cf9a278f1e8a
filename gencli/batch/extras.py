"""Optional packages of batches, and the error with the command that installs a missing one."""

from __future__ import annotations

from importlib.util import find_spec

from gencli.errors import UsageError

__all__ = ["INSTALL", "need_pyarrow"]

INSTALL = "Install it with: pip install 'gencli[batch]'"


def need_pyarrow(name: str) -> None:
    """Raise UsageError with the install command if pyarrow is missing; `name` is the file that needs it."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{name} needs pyarrow, which is not installed.", hint=INSTALL)
