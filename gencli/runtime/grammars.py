"""Compile each grammar once: the best of its variants that a back end does not refuse."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gencli.config.job import Job
from gencli.errors import ConfigError
from gencli.models.files.model_card import end_ids
from gencli.recent import Recent
from gencli.runtime.models import Loaded
from gencli.structured.output_spec import OutputSpec, Plan, Variant, plan_notices
from gencli.structured.schema_errors import OutOfTime
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler, Env
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.grammar_compiler import GrammarCompiler

__all__ = ["Compiled", "Compiling", "Grammars", "PerSpec", "compile_plan", "grammar_env", "make_compiler"]

T = TypeVar("T")
_MAX_ENTRIES = 256  # as many as a compiler caches


@dataclass(frozen=True, slots=True)
class Compiled:
    """The chosen variant, the seconds of compiling, and why better variants were not chosen.

    `warnings`: warnings of the back end.
    """

    variant: Variant
    seconds: float
    passed_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Why better variants do not run, and what this one leaves to the final check; () for the best."""
        backend = self.variant.constraint.backend
        if not self.passed_over:
            return ()
        less = plan_notices(Plan((self.variant,), f"{backend} does not enforce all of this schema."))
        return (*(f"{reason} {backend} takes its place." for reason in self.passed_over), *less)


def compile_plan(plan: Plan, compiler: Compiler) -> Compiled:
    """Compile the best variant; another one only where the back end of the one before refuses its grammar.

    A slow compile ends in OutOfTime at the limit, and never in a variant that enforces less: which variant
    runs depends on the plan and the installed back ends alone. Raises ConfigError with all reasons if none
    compiles.
    """
    begin, reasons = time.monotonic(), list[str]()
    for variant in plan.variants:
        left = max(0.0, plan.seconds - (time.monotonic() - begin))
        try:
            grammar = compiler.compile(variant.constraint, left)
        except GrammarTimeout as error:
            several = ", or choose another back end with `grammar_backend`" * (len(plan.variants) > 1)
            raise OutOfTime(
                " ".join([*reasons, str(error)]),
                hint=f"Make the grammar smaller, give it more time with `grammar_timeout`{several}.",
            ) from error
        except GrammarError as error:
            reasons.append(f"{variant.constraint.backend}: {error}")
        else:
            return Compiled(variant, time.monotonic() - begin, tuple(reasons), grammar.warnings)
    raise ConfigError(
        f"No back end compiles the grammar. {' '.join(reasons)}",
        hint="Make it smaller, or give it more time with `grammar_timeout`.",
    )


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
    """Compiles each grammar at its first request. If a back end refuses it, all requests for it fail.

    So do all requests of a run for a grammar that was not compiled in time. Where requests keep coming, with
    `retries_late`, that fails its request alone, and a later one tries again.
    """

    def __init__(self, compiler: Compiler, *, retries_late: bool = False) -> None:
        self._compiler, self._retries_late = compiler, retries_late
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
            if self._retries_late and isinstance(error, OutOfTime):
                raise
            return error
