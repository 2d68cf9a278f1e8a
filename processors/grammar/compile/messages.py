"""What a process that compiles is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from processors.grammar.backends.base import Grammar

__all__ = ["Portable", "Reply", "Setup"]


@runtime_checkable
class Portable(Protocol):
    """A back end whose grammars can be written to a file."""

    def dump(self, grammar: Any) -> bytes:
        """A grammar as bytes."""
        ...

    def load(self, data: bytes) -> Grammar:
        """The grammar of the bytes. GrammarError if they are none."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What the process is to be: `memory` bytes may be taken in addition to what it starts with.

    A grammar that took more than `dump_after` seconds comes back as bytes, if the back end can do that.
    """

    backend: str
    width: int
    token_bytes: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    memory: int
    dump_after: float


@dataclass(frozen=True, slots=True)
class Reply:
    """How it went: `error` is "" if the grammar compiles. `data` is the grammar, or b""."""

    error: str = ""
    seconds: float = 0.0
    data: bytes = b""
