"""`GrammarCompiler`: compile each grammar once, in the background, within limits of time and memory."""

from __future__ import annotations

import hashlib
import math
import threading
import time
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import astuple
from functools import partial
from itertools import chain
from pathlib import Path

from processors.base import Env
from processors.constraint import Constraint
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.backends.base import Backend, Grammar, load_backend
from processors.grammar.backends.byte_vocabulary import GrammarVocabulary
from processors.grammar.compile.limits import check_size, is_small
from processors.grammar.compile.messages import Portable, Reply, Setup
from processors.grammar.compile.process import CompileProcess, TimeLimit
from processors.grammar.compile.store import GrammarStore
from processors.grammar.compile.threads import Lane
from processors.grammar.compile.trial import TRIAL

__all__ = ["GrammarCompiler"]

_REMEMBERED = 256  # grammars kept in memory
_RECOMPILE_SECONDS = 1.0  # seconds; a grammar compiled faster is compiled again here, not dumped and loaded


class GrammarCompiler:
    """Compiles constraints for one vocabulary. Thread-safe.

    A grammar that may take much time, memory or stack is first compiled in a child process, limited to
    `timeout` seconds and `memory` bytes. If that succeeds, the result is loaded here, or compiled again. With
    `cache_dir` the result is kept for later runs.
    """

    def __init__(
        self, env: Env, *, timeout: float = 30.0, memory: int = 3 << 29, cache_dir: Path | None = None
    ) -> None:
        self.env, self.timeout, self.memory = env, timeout, memory
        self.timings: dict[Constraint, float] = {}  # compile time in seconds of each cached grammar
        self._store = GrammarStore(cache_dir) if cache_dir else None
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._backends: dict[str, Backend] = {}
        self._futures: OrderedDict[Constraint, Future[Grammar]] = OrderedDict()
        self._idle: dict[str, list[CompileProcess]] = {}
        self._vocabulary_digest = ""
        # Small grammars have their own threads, so that they never wait for large ones.
        self._lanes = {small: Lane(threads=2) for small in (True, False)}
        weakref.finalize(self, _close, self._idle, list(self._lanes.values()))

    def backend(self, name: str) -> Backend:
        """Return the only instance of a back end for this vocabulary."""
        with self._loading:
            if name not in self._backends:
                self._backends[name] = load_backend(name, self.env)
            return self._backends[name]

    def compile(self, constraint: Constraint, seconds: float = math.inf) -> Grammar:
        """Return the grammar. GrammarError if it is wrong or over a limit, GrammarTimeout if out of time.

        The time limit is the smaller of `timeout` and `seconds`.
        """
        return self.start(constraint, seconds).result()

    def start(self, constraint: Constraint, seconds: float = math.inf) -> Future[Grammar]:
        """Compile in the background. Equal constraints share one grammar, or one error."""
        with self._lock:
            future = self._futures.get(constraint)
            if future is None:
                future = self._futures[constraint] = Future()
                self._lanes[is_small(constraint)].put(partial(self._fulfil, future, constraint, seconds))
            self._futures.move_to_end(constraint)
            while len(self._futures) > _REMEMBERED:
                dropped, _ = self._futures.popitem(last=False)
                self.timings.pop(dropped, None)
            return future

    def close(self) -> None:
        """End idle threads and processes; busy ones end after their task, or with the program."""
        with self._lock:
            _close(self._idle, list(self._lanes.values()))

    def _fulfil(self, future: Future[Grammar], constraint: Constraint, seconds: float) -> None:
        if not future.set_running_or_notify_cancel():
            return
        begin = time.perf_counter()
        try:
            grammar = self._compile(constraint, seconds)
        except BaseException as error:
            if isinstance(error, GrammarTimeout):
                with self._lock:  # a later call tries again
                    if self._futures.get(constraint) is future:
                        del self._futures[constraint]
            future.set_exception(error)
        else:
            with self._lock:
                if constraint in self._futures:
                    self.timings[constraint] = time.perf_counter() - begin
            future.set_result(grammar)

    def _compile(self, constraint: Constraint, seconds: float) -> Grammar:
        check_size(constraint)
        if is_small(constraint):
            return self.backend(constraint.backend).compile(constraint)
        key = self._key(constraint)
        stored = self._store.get(key) if self._store else None
        if stored is not None:
            try:
                return self._grammar(constraint, stored)
            except GrammarError:
                pass  # compile again and replace the stored data
        reply = self._try(constraint, TimeLimit(self.timeout, seconds))
        if self._store:
            self._store.put(key, reply.data)
        return self._grammar(constraint, reply.data)

    def _grammar(self, constraint: Constraint, data: bytes) -> Grammar:
        """Load the grammar that a child process sent; compile it here if `data` is empty."""
        backend = self.backend(constraint.backend)
        if data and isinstance(backend, Portable):
            return backend.load(data)
        return backend.compile(constraint)

    def _try(self, constraint: Constraint, limit: TimeLimit) -> Reply:
        process = self._take(constraint.backend)
        try:
            backend = self.backend(constraint.backend)  # loads the back end while the process starts
            return process.compile(constraint, limit, twice=not isinstance(backend, Portable))
        finally:
            with self._lock:
                if process.is_alive:
                    self._idle.setdefault(constraint.backend, []).append(process)
                else:
                    process.close()

    def _take(self, name: str) -> CompileProcess:
        """Return an idle or new process for a back end."""
        with self._lock:
            process = self._idle[name].pop() if self._idle.get(name) else None
        if process is None:
            tokens = GrammarVocabulary(self.env).token_bytes
            process = CompileProcess(
                Setup(name, self.env.vocab_size, tokens, self.env.eos_ids, self.memory, _RECOMPILE_SECONDS)
            )
        return process

    def _key(self, constraint: Constraint) -> str:
        """Return the cache key: a digest of everything that a compiled grammar depends on."""
        if not self._vocabulary_digest:
            tokens = (GrammarVocabulary(self.env).token_bytes, self.env.eos_ids)
            self._vocabulary_digest = hashlib.sha256(repr(tokens).encode()).hexdigest()
        version = self.backend(constraint.backend).version
        parts = (astuple(constraint), version, TRIAL, self._vocabulary_digest)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _close(idle: dict[str, list[CompileProcess]], lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.close()
    for process in chain.from_iterable(idle.values()):
        process.close()
    idle.clear()
