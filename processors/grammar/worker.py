"""A process that compiles grammars for another one, which can end it at any time.

`python -m processors.grammar.worker` reads pickles from standard input, first a Setup and then
constraints, and answers each with a Reply on standard output. It ends when its input does.
"""

from __future__ import annotations

import errno
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
from processors.grammar.backend import Backend, load_backend
from processors.grammar.constraint import Constraint
from processors.grammar.lane import start_thread
from processors.grammar.messages import OUT_OF_MEMORY, Portable, Reply, Setup
from processors.grammar.trial import try_steps
from processors.grammar.vocabulary import GrammarVocabulary

__all__: list[str] = []

_STACK = 8 << 20
_NO_MEMORY = ("MemoryError", "bad_alloc", os.strerror(errno.EAGAIN))  # the last where a thread gets no stack
_STATUS = Path("/proc/self/status")


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
    vocabulary = GrammarVocabulary(env)
    _limit_memory(setup.memory)
    _send(target, Reply())
    while True:
        _send(target, _compile(backend, vocabulary, questions.get(), setup.dump_after))


def _compile(backend: Backend, vocabulary: GrammarVocabulary, constraint: Constraint, limit: float) -> Reply:
    begin = time.perf_counter()
    try:
        grammar = backend.compile(constraint)
        seconds = time.perf_counter() - begin
        try_steps(backend, grammar, vocabulary)
        if seconds > limit and isinstance(backend, Portable):
            return Reply(seconds=seconds, data=backend.dump(grammar))
    except Exception as error:
        said = str(error) or type(error).__name__
        if any(words in said for words in _NO_MEMORY):  # who knows what is left of the back end
            os._exit(OUT_OF_MEMORY)
        return Reply(error=said)
    return Reply(seconds=seconds)


def _send(target: BinaryIO, reply: Reply) -> None:
    pickle.dump(reply, target)
    target.flush()


def _limit_memory(more: int) -> None:
    """Let the process take this many bytes more than now, where the system tells and limits that: on Linux.

    Out of memory on one of its threads, xgrammar waits for ever. So the process ends shortly before.
    """
    if not _STATUS.exists():
        return
    import resource

    most = _memory() + more
    resource.setrlimit(resource.RLIMIT_DATA, (most + more // 8, resource.RLIM_INFINITY))
    start_thread(lambda: _watch_memory(most), 1 << 20)


def _watch_memory(most: int) -> None:
    while _memory() < most:
        time.sleep(0.02)
    os._exit(OUT_OF_MEMORY)


def _memory() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no reply
    _main(sys.stdin.buffer, replies)
