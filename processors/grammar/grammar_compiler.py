"""`GrammarCompiler`: compile each grammar once, in a child process within limits, and try its first steps."""

from __future__ import annotations

import hashlib
import math
import random
import signal
import threading
import time
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from processors.base import Env
from processors.child import OUT_OF_MEMORY, Child, ChildDied, ChildLate
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.compile_guards import MAX_STEP_SECONDS, DaemonPool, GrammarStore, check_size, is_small
from processors.grammar.grammar_backend import Ask, Backend, CompiledGrammar, GrammarVocabulary, load_backend
from processors.request_values import Constraint

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
        self._futures: OrderedDict[Constraint, Future[CompiledGrammar]] = OrderedDict()
        self._idle: dict[str, list[CompileProcess]] = {}
        self._vocabulary_digest = ""
        # Small grammars have their own threads, so that they never wait for large ones.
        self._pools = {small: DaemonPool(threads=2) for small in (True, False)}
        weakref.finalize(self, _close, self._idle, list(self._pools.values()))

    def backend(self, name: str) -> Backend:
        """Return the only instance of a back end for this vocabulary."""
        with self._loading:
            if name not in self._backends:
                self._backends[name] = load_backend(name, self.env)
            return self._backends[name]

    def compile(self, constraint: Constraint, seconds: float = math.inf) -> CompiledGrammar:
        """Return the grammar. GrammarError if it is wrong or over a limit, GrammarTimeout if out of time.

        The time limit is the smaller of `timeout` and `seconds`.
        """
        return self.start(constraint, seconds).result()

    def start(self, constraint: Constraint, seconds: float = math.inf) -> Future[CompiledGrammar]:
        """Compile in the background. Equal constraints share one grammar, or one error."""
        with self._lock:
            future = self._futures.get(constraint)
            if future is None:
                future = self._pools[is_small(constraint)].submit(self._timed, constraint, seconds)
                self._futures[constraint] = future
            self._futures.move_to_end(constraint)
            while len(self._futures) > _REMEMBERED:
                dropped, _ = self._futures.popitem(last=False)
                self.timings.pop(dropped, None)
            return future

    def close(self) -> None:
        """End idle threads and processes; busy ones end after their task, or with the program."""
        with self._lock:
            _close(self._idle, list(self._pools.values()))

    def _timed(self, constraint: Constraint, seconds: float) -> CompiledGrammar:
        begin = time.perf_counter()
        try:
            grammar = self._compile(constraint, seconds)
        except GrammarTimeout:
            with self._lock:  # a later call tries again
                self._futures.pop(constraint, None)
            raise
        with self._lock:
            if constraint in self._futures:
                self.timings[constraint] = time.perf_counter() - begin
        return grammar

    def _compile(self, constraint: Constraint, seconds: float) -> CompiledGrammar:
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
        process = self._take(constraint.backend)
        try:
            backend = self.backend(constraint.backend)  # loads the back end while the process starts
            is_twice = not isinstance(backend, Portable)
            reply = process.compile(constraint, self.timeout, seconds, twice=is_twice)
        finally:
            with self._lock:
                if process.is_alive:
                    self._idle.setdefault(constraint.backend, []).append(process)
                else:
                    process.close()
        if self._store:
            self._store.put(key, reply.data)
        return self._grammar(constraint, reply.data)

    def _grammar(self, constraint: Constraint, data: bytes) -> CompiledGrammar:
        """Load the grammar that a child process sent; compile it here if `data` is empty."""
        backend = self.backend(constraint.backend)
        if data and isinstance(backend, Portable):
            return backend.load(data)
        return backend.compile(constraint)

    def _take(self, name: str) -> CompileProcess:
        """Return an idle or new process for a back end."""
        with self._lock:
            process = self._idle[name].pop() if self._idle.get(name) else None
        if process is not None:
            return process
        env, tokens = self.env, GrammarVocabulary(self.env).token_bytes
        setup = CompileSetup(name, env.vocab_size, tokens, env.eos_ids, self.memory, _RECOMPILE_SECONDS)
        return CompileProcess(setup)

    def _key(self, constraint: Constraint) -> str:
        """Return the cache key: a digest of everything that a compiled grammar depends on."""
        if not self._vocabulary_digest:
            tokens = (GrammarVocabulary(self.env).token_bytes, self.env.eos_ids)
            self._vocabulary_digest = hashlib.sha256(repr(tokens).encode()).hexdigest()
        version = self.backend(constraint.backend).version
        parts = (astuple(constraint), version, TRIAL, self._vocabulary_digest)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _close(idle: dict[str, list[CompileProcess]], pools: list[DaemonPool]) -> None:
    for pool in pools:
        pool.shutdown()
    for process in chain.from_iterable(idle.values()):
        process.close()
    idle.clear()


_START_SECONDS = 300.0  # to start the process and import its back end, which is no compile time


class CompileProcess(Child):
    """A process that compiles constraints one at a time, and ends at the first constraint over a limit."""

    def __init__(self, setup: CompileSetup) -> None:
        super().__init__("processors.grammar.compile_worker")
        self._setup, self._is_ready = setup, False

    def compile(self, constraint: Constraint, limit: float, left: float, *, twice: bool) -> CompileReply:
        """Compile a constraint. GrammarTimeout if out of time, GrammarError if the process dies; both end it.

        The time, the smaller of `limit` and `left` seconds, counts from when the process has started.
        `twice`: the caller compiles the grammar again, so half of the time is left for this compile.
        """
        if not self._is_ready:
            self._answer(self._setup, _START_SECONDS, "start")
            self._is_ready = True
        part = f", of which {left:.2g} s were left" if left < 0.95 * limit else ""
        purpose = f"compile this {constraint.kind} within the time limit of {limit:g} s{part}"
        return self._answer(constraint, min(limit, left) / (1 + twice), purpose)

    def _answer(self, question: CompileSetup | Constraint, timeout: float, purpose: str) -> CompileReply:
        try:
            reply: CompileReply = self.ask(question, timeout)
        except ChildLate as error:
            raise GrammarTimeout(f"{self._setup.backend} did not {purpose}.") from error
        except ChildDied as error:
            memory = f"the memory limit of {self._setup.memory >> 20} MiB"
            causes = f", {memory} and the depth of its stack"
            if error.code == OUT_OF_MEMORY:
                causes = f" and {memory}"
            elif error.code < 0:
                causes += f" ({signal.Signals(-error.code).name})"
            raise GrammarError(f"{self._setup.backend} could not {purpose}{causes}.") from error
        if reply.error:
            raise GrammarError(reply.error)
        return reply


@runtime_checkable
class Portable(Protocol):
    """A back end whose grammars can be serialised."""

    def dump(self, grammar: Any) -> bytes:
        """Serialise a grammar."""

    def load(self, data: bytes) -> CompiledGrammar:
        """Load a serialised grammar. GrammarError for invalid data."""


@dataclass(frozen=True, slots=True)
class CompileSetup:
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
class CompileReply:
    """Answer of a child process: `error` is "" on success; `data` is the serialised grammar or b""."""

    error: str = ""
    data: bytes = b""


TRIAL = "3"  # version of the trial and of what is made of a schema, part of the cache key
_WALKS, _STEPS = 4, 16


def try_steps(backend: Backend, grammar: CompiledGrammar, vocabulary: GrammarVocabulary) -> None:
    """Raise GrammarError if a step in a few random texts takes more than MAX_STEP_SECONDS of CPU time.

    Examples: xgrammar compiles ((a{0,100}){0,100}){0,100} at once, but then each letter takes twice the time
    of the letter before; for (a?){5000}a{5000} it takes seconds to find the forced text.
    """
    rng = random.Random(0)
    mask = torch.zeros(1, vocabulary.words, dtype=torch.int32)
    for _ in range(_WALKS):
        matcher = grammar.matcher()
        for step in range(_STEPS):
            begin = time.process_time()
            backend.fill([Ask(matcher, (), 0)], mask)
            matcher.forced()
            seconds = time.process_time() - begin
            words = (mask[0] & vocabulary.text_mask).nonzero().view(-1).tolist()
            if not words:
                break
            word = rng.choice(words)
            bits = int(mask[0, word]) & int(vocabulary.text_mask[word])
            token = rng.choice([32 * word + bit for bit in range(32) if bits >> bit & 1])
            begin = time.process_time()
            matcher.accept(token)
            seconds += time.process_time() - begin
            if seconds > MAX_STEP_SECONDS:
                raise GrammarError(
                    f"{backend.name} takes {seconds:.1f} s of CPU time for token {step + 1} of a text in "
                    f"this grammar; the limit is {MAX_STEP_SECONDS:g} s."
                )
