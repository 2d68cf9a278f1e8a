"""`Room`: notes a full memory where a step cannot be undone, so that its sequences restart behind it."""

from __future__ import annotations

from types import TracebackType

from processors.machine_faults import is_out_of_memory

__all__ = ["Room"]


class Room:
    """A context in which the memory may run out; what was to be done there is left undone then."""

    def __init__(self) -> None:
        self._is_full = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_full = error is not None and is_out_of_memory(error)
        self._is_full |= is_full
        return is_full

    def was_full(self) -> bool:
        """Whether the memory has run out since the last call."""
        found, self._is_full = self._is_full, False
        return found
