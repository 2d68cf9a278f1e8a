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
from queue import SimpleQueue
from typing import Any, BinaryIO

from processors.base import Env
from processors.errors import GrammarError
from processors.grammar.backend import Backend, load_backend
from processors.grammar.constraint import Constraint
from processors.grammar.lane import start_thread
from processors.grammar.messages import Portable, Reply, Setup

__all__: list[str] = []

_STACK = 8 << 20


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
    """Read constraints here, compile them on a thread: the end of the input ends that at once."""
    questions: SimpleQueue[Setup | Constraint] = SimpleQueue()
    start_thread(lambda: _answer(questions, target), _STACK)
    with suppress(EOFError):
        while True:
            questions.put(pickle.load(source))
    os._exit(0)


def _answer(questions: SimpleQueue[Any], target: BinaryIO) -> None:
    setup: Setup = questions.get()
    env = Env(setup.width, _Vocabulary(setup.token_bytes), setup.eos_ids)
    try:
        backend = load_backend(setup.backend, env)
    except Exception as error:
        return _send(target, Reply(error=f"The back end {setup.backend} does not start: {error}"))
    _limit_memory(setup.memory)
    _send(target, Reply())
    while True:
        _send(target, _compile(backend, questions.get(), setup.dump_after))


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
