"""Messages between GrammarCompiler and its child processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from processors.grammar.backends.base import Grammar

__all__ = ["Portable", "Reply", "Setup"]


@runtime_checkable
class Portable(Protocol):
    """A back end whose grammars can be serialised."""

    def dump(self, grammar: Any) -> bytes:
        """Serialise a grammar."""
        ...

    def load(self, data: bytes) -> Grammar:
        """Load a serialised grammar. GrammarError for invalid data."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """First message to a child process. `memory` is its limit in bytes beyond the memory at its start.

    A grammar that took more than `dump_after` seconds is returned serialised, if the back end is Portable.
    """

    backend: str
    width: int
    token_bytes: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    memory: int
    dump_after: float


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a child process: `error` is "" on success; `data` is the serialised grammar or b""."""

    error: str = ""
    seconds: float = 0.0
    data: bytes = b""
