"""The child process of `CompileProcess`: compiles grammars and may be killed at any time.

`python -m processors.grammar.compile_worker` reads pickles from standard input, first a CompileSetup and then
constraints, and answers each with a pickled CompileReply on standard output. It ends with its input.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from processors.base import Env
from processors.child import OUT_OF_MEMORY, limit_memory, serve
from processors.grammar.grammar_backend import GrammarVocabulary, load_backend
from processors.grammar.grammar_compiler import CompileReply, CompileSetup, Portable, try_steps
from processors.request_values import Constraint

_STACK = 8 << 20
_NO_MEMORY = ("MemoryError", "bad_alloc", os.strerror(errno.EAGAIN))  # EAGAIN: none for a thread's stack


@dataclass(frozen=True, slots=True)
class _ByteVocabulary:
    """A vocabulary without a tokenizer; it encodes byte by byte."""

    token_bytes: Sequence[bytes]
    special_ids: frozenset[int] = frozenset()

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        singles = {data: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        return [singles[data] for data in (bytes([byte]) for byte in text.encode()) if data in singles]


def _answer(question: Callable[[], Any], reply: Callable[[Any], None]) -> None:
    setup: CompileSetup = question()
    env = Env(setup.width, _ByteVocabulary(setup.token_bytes), setup.eos_ids)
    try:
        backend = load_backend(setup.backend, env)
    except Exception as error:
        return reply(CompileReply(error=f"The back end {setup.backend} does not start: {error}"))
    vocabulary = GrammarVocabulary(env)
    limit_memory(setup.memory)
    reply(CompileReply())
    while True:
        constraint: Constraint = question()
        begin = time.perf_counter()
        try:
            grammar = backend.compile(constraint)
            is_slow = time.perf_counter() - begin > setup.dump_after
            try_steps(backend, grammar, vocabulary)
            data = backend.dump(grammar) if is_slow and isinstance(backend, Portable) else b""
            answer = CompileReply(data=data)
        except Exception as error:
            answer = CompileReply(error=str(error) or type(error).__name__)
            if any(words in answer.error for words in _NO_MEMORY):  # the back end may be inconsistent
                os._exit(OUT_OF_MEMORY)
        reply(answer)


if __name__ == "__main__":
    serve(_answer, stack=_STACK)
