"""`Room`: records out-of-memory where a step cannot be undone; its sequences then restart after the step."""

from __future__ import annotations

from types import TracebackType

from processors.machine_faults import is_out_of_memory

__all__ = ["Room"]


class Room:
    """A context manager that suppresses out-of-memory errors; the rest of the block is skipped.

    `is_full`: whether memory has run out.
    """

    def __init__(self) -> None:
        self.is_full = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_full = error is not None and is_out_of_memory(error)
        self.is_full |= is_full
        return is_full
