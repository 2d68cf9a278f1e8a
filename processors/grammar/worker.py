"""A process that compiles grammars for another one, which can end it at any time.

`python -m processors.grammar.worker` reads pickles from standard input, first a Setup and then
constraints, and answers each with a Reply on standard output. It ends when its input does.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

from processors.base import Env
from processors.errors import GrammarError
from processors.grammar.backend import Backend, Grammar, load_backend
from processors.grammar.constraint import Constraint

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


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """A vocabulary without its tokenizer."""

    token_bytes: Sequence[bytes]
    special_ids: frozenset[int] = frozenset()

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        singles = {data: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        return [singles[data] for data in (bytes([byte]) for byte in text.encode()) if data in singles]


def _main(source: BinaryIO, target: BinaryIO) -> None:
    setup: Setup = pickle.load(source)
    env = Env(setup.width, _Vocabulary(setup.token_bytes), setup.eos_ids)
    try:
        backend = load_backend(setup.backend, env)
    except Exception as error:
        return _send(target, Reply(error=f"The back end {setup.backend} does not start: {error}"))
    _limit_memory(setup.memory)
    _send(target, Reply())
    with suppress(EOFError):
        while True:
            _send(target, _compile(backend, pickle.load(source), setup.dump_after))


def _compile(backend: Backend, constraint: Constraint, dump_after: float) -> Reply:
    begin = time.perf_counter()
    try:
        grammar = backend.compile(constraint)
        seconds = time.perf_counter() - begin
        if seconds > dump_after and isinstance(backend, Portable):
            return Reply(seconds=seconds, data=backend.dump(grammar))
    except (GrammarError, MemoryError) as error:
        return Reply(error=str(error) or "MemoryError")
    return Reply(seconds=seconds)


def _send(target: BinaryIO, reply: Reply) -> None:
    pickle.dump(reply, target)
    target.flush()


def _limit_memory(more: int) -> None:
    """Let the process take this many bytes more than now, where the system can limit that: on Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        import resource

        used = next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmData" in line)
        resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + more, resource.RLIM_INFINITY))


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no reply
    _main(sys.stdin.buffer, replies)
