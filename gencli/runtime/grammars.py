"""Compile each grammar once, its variants concurrently, and choose the best one that is ready in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gencli.config.job import Job
from gencli.errors import ConfigError
from gencli.models.files.vocabulary import end_ids
from gencli.recent import Recent
from gencli.runtime.models import Loaded
from gencli.structured.output_spec import OutputSpec
from gencli.structured.plan import Plan, Variant
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler, Env
from processors.errors import GrammarError
from processors.grammar.compile.compiler import GrammarCompiler

__all__ = ["Compiled", "Compiling", "Grammars", "PerSpec", "compile_plan", "grammar_env", "make_compiler"]

T = TypeVar("T")
_MAX_ENTRIES = 256  # as many as a compiler caches
_HEAD_START = 1.0  # seconds in which only the first variant compiles; most variants need less
# A ready variant waits for a better one during this share of the plan's seconds, and at most 6 s.
_PATIENCE, _MOST_PATIENCE = 0.2, 6.0


@dataclass(frozen=True, slots=True)
class Compiled:
    """The chosen variant, the seconds of compiling, and why better variants were not chosen.

    `warnings`: warnings of the back end.
    """

    variant: Variant
    seconds: float
    passed_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def compile_plan(plan: Plan, compiler: Compiler) -> Compiled:
    """Compile the variants concurrently. Raises ConfigError with all reasons if none compiles.

    The first variant is chosen if it is ready within a fifth of the plan's seconds (at most 6 s), otherwise
    the best one that is ready then. The other compiles are stopped.
    """
    return _Race(plan, compiler).winner()


class _Race:
    """The variants that have not failed, best first; `_futures` belong to the first of them."""

    def __init__(self, plan: Plan, compiler: Compiler) -> None:
        self._compiler, self._seconds = compiler, plan.seconds
        self._variants = list(plan.variants)
        self._futures: list[Future[Any]] = []
        self._reasons: list[str] = []
        self._begin = time.monotonic()

    def winner(self) -> Compiled:
        patience = min(_PATIENCE * self._seconds, _MOST_PATIENCE)
        while self._variants:
            if not self._futures and self._reasons and self._elapsed >= self._seconds:
                self._reasons += [
                    f"{variant.constraint.backend}: no time was left for it." for variant in self._variants
                ]
                break
            if not self._futures:
                self._start(1)
            elif self._elapsed >= _HEAD_START:
                self._start(len(self._variants))
            self._drop_failed()
            ready = next((n for n, future in enumerate(self._futures) if future.done()), None)
            if ready is not None and (ready == 0 or self._elapsed >= patience):
                return self._choose(ready)
            if self._futures:
                is_whole = len(self._futures) == len(self._variants)
                self._wait(patience if ready is not None else math.inf if is_whole else _HEAD_START)
        raise ConfigError(
            f"No back end compiles the grammar. {' '.join(self._reasons)}",
            hint="Make it smaller, or give it more time with `grammar_timeout`.",
        )

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _start(self, count: int) -> None:
        """Start compiling the first `count` variants."""
        for variant in self._variants[len(self._futures) : count]:
            left = max(0.0, self._seconds - self._elapsed)
            self._futures.append(self._compiler.start(variant.constraint, left))

    def _drop_failed(self) -> None:
        for index, future in reversed(list(enumerate(self._futures))):
            if future.done() and (error := future.exception()) is not None:
                if not isinstance(error, GrammarError):
                    raise error
                variant = self._variants.pop(index)
                del self._futures[index]
                self._reasons.append(f"{variant.constraint.backend}: {error}")

    def _wait(self, until: float) -> None:
        """Wait for one more future, at most until `until` seconds after the start."""
        open_ = [future for future in self._futures if not future.done()]
        timeout = None if math.isinf(until) else max(0.0, until - self._elapsed)
        wait(open_, timeout, return_when=FIRST_COMPLETED)

    def _choose(self, index: int) -> Compiled:
        seconds, variant = self._elapsed, self._variants[index]
        for one, future in zip(self._variants, self._futures, strict=False):
            if not future.done():
                self._compiler.abandon(one.constraint)
        late = f"it was not ready after {seconds:.2g} s, as the next one was."
        self._reasons += [f"{one.constraint.backend}: {late}" for one in self._variants[:index]]
        warnings = self._futures[index].result().warnings
        return Compiled(variant, seconds, tuple(self._reasons), warnings)


def grammar_env(loaded: Loaded) -> Env:
    """Return the vocabulary of a loaded model, for compiling grammars."""
    spec, tokenizer = loaded.runner.spec, loaded.tokenizer
    return Env(spec.vocab_size, tokenizer, end_ids(spec.eos_ids, tokenizer, spec.vocab_size))


def make_compiler(env: Env, timeout: float) -> GrammarCompiler:
    """Return the grammar compiler of a run, with the user's grammar cache."""
    from platformdirs import user_cache_path

    return GrammarCompiler(env, timeout=timeout, cache_dir=Path(user_cache_path("gencli")) / "grammars")


class Compiling:
    """Compiles a run's grammar on a thread while the model loads.

    `begin` uses the vocabulary of the tokenizer and the model's configuration. If the loaded model has
    another vocabulary, `finish` compiles the grammar again.
    """

    def __init__(self, structure: OutputSpec | None, timeout: float) -> None:
        self._structure, self._timeout = structure, timeout
        self._compiler: GrammarCompiler | None = None
        self._found: Future[Compiled] | None = None

    def begin(self, tokenizer: Tokenizer, width: int, eos_ids: tuple[int, ...]) -> None:
        """Start compiling, if the run has a structure."""
        if self._structure is None:
            return
        self._compiler = make_compiler(Env(width, tokenizer, eos_ids), self._timeout)
        thread = ThreadPoolExecutor(1, "grammar")
        self._found = thread.submit(compile_plan, self._structure.plan, self._compiler)
        thread.shutdown(wait=False)

    def finish(self, loaded: Loaded) -> tuple[GrammarCompiler, Compiled | None]:
        """Return the compiler for the loaded model and the run's grammar. Raises ConfigError."""
        early, env = self._compiler, grammar_env(loaded)
        if early is None or (early.env.vocab_size, early.env.eos_ids) != (env.vocab_size, env.eos_ids):
            self._compiler, self._found = make_compiler(env, self._timeout), None
        assert self._compiler is not None
        if self._structure is None:
            return self._compiler, None
        if self._found is not None:
            return self._compiler, self._found.result()
        return self._compiler, compile_plan(self._structure.plan, self._compiler)

    def close(self) -> None:
        """Stop compiling."""
        if self._compiler is not None:
            self._compiler.close()


class PerSpec(Generic[T]):
    """Least-recently-used cache of `make` by structure; several threads may use it."""

    def __init__(self, make: Callable[[OutputSpec | None], T]) -> None:
        self._make = make
        # Keyed by identity, because schemas have no hash. The entry keeps the structure alive, so its id is
        # not reused.
        self._made: Recent[int, tuple[OutputSpec | None, T]] = Recent(_MAX_ENTRIES)

    def __call__(self, structure: OutputSpec | None) -> T:
        """Return the value for the structure."""
        return self._made.get(id(structure), lambda: (structure, self._make(structure)))[1]


class Grammars:
    """Compiles each grammar at its first request. If that fails, all requests for the grammar fail."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._found = PerSpec(self._compile)

    def ready(self, job: Job) -> Job:
        """Return the job, constrained to its grammar if it has one. Raises ConfigError."""
        compiled = self.compiled(job)
        return job if compiled is None else job.on(compiled.variant.constraint)

    def compiled(self, job: Job) -> Compiled | None:
        """Return the grammar of a job; None without a structure. Raises ConfigError."""
        found = self._found(job.structure)
        if isinstance(found, ConfigError):
            raise found
        return found

    def _compile(self, structure: OutputSpec | None) -> Compiled | ConfigError | None:
        try:
            return None if structure is None else compile_plan(structure.plan, self._compiler)
        except ConfigError as error:
            return error
