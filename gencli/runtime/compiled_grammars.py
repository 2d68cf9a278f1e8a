"""Compile each grammar once (the best of its variants that a back end does not refuse), and sample invalid
outputs again; the last attempt of each sample is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from gencli.config.job import Job
from gencli.core.events import Error, Event, Finish
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError
from gencli.helpers import Recent
from gencli.runtime.model_loading import Loaded
from gencli.structured.output_spec import Compiled, OutputSpec, OutputValidator, Plan
from gencli.structured.schema_errors import OutOfTime
from gencli.text.tokenizer import Tokenizer, end_ids
from processors.base import Compiler, Env
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.rng import derive

T = TypeVar("T")
_MAX_ENTRIES = 256  # as many as a compiler caches


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
        self._future: Future[Compiled] | None = None

    def begin(self, tokenizer: Tokenizer, width: int, eos_ids: tuple[int, ...]) -> None:
        """Start compiling, if the run has a structure."""
        if self._structure is None:
            return
        self._compiler = make_compiler(Env(width, tokenizer, eos_ids), self._timeout)
        thread = ThreadPoolExecutor(1, "grammar")
        self._future = thread.submit(compile_plan, self._structure.plan, self._compiler)
        thread.shutdown(wait=False)

    def finish(self, loaded: Loaded) -> tuple[GrammarCompiler, Compiled | None]:
        """Return the compiler for the loaded model and the run's grammar. Raises ConfigError."""
        early, env = self._compiler, grammar_env(loaded)
        if early is None or (early.env.vocab_size, early.env.eos_ids) != (env.vocab_size, env.eos_ids):
            self._compiler, self._future = make_compiler(env, self._timeout), None
        assert self._compiler is not None
        if self._structure is None:
            return self._compiler, None
        if self._future is not None:
            return self._compiler, self._future.result()
        return self._compiler, compile_plan(self._structure.plan, self._compiler)

    def close(self) -> None:
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
        return self._made.get(id(structure), lambda: (structure, self._make(structure)))[1]


class Grammars:
    """Compiles each grammar at its first request. If a back end refuses it, all requests for it fail.

    So do all requests of a run for a grammar that was not compiled in time. Where requests keep coming, with
    `retries_late`, that fails its request alone, and a later one tries again.
    """

    def __init__(self, compiler: Compiler, *, retries_late: bool = False) -> None:
        self._compiler, self._retries_late = compiler, retries_late
        self._per_structure = PerSpec(self._compile)

    def ready(self, job: Job) -> Job:
        """Return the job, constrained to its grammar if it has one. Raises ConfigError."""
        compiled = self.compiled(job)
        return job if compiled is None else job.on(compiled.variant.constraint)

    def compiled(self, job: Job) -> Compiled | None:
        """Return the grammar of a job; None without a structure. Raises ConfigError."""
        compiled = self._per_structure(job.structure)
        if isinstance(compiled, ConfigError):
            raise compiled
        return compiled

    def _compile(self, structure: OutputSpec | None) -> Compiled | ConfigError | None:
        try:
            return None if structure is None else compile_plan(structure.plan, self._compiler)
        except ConfigError as error:
            if self._retries_late and isinstance(error, OutOfTime):
                raise
            return error


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a sample of a request, and the seconds spent on earlier attempts."""

    request: Request
    structure: OutputSpec | None
    sample: int
    number: int = 1
    seconds: float = 0.0


class RetryingEngine:
    """Run requests, validate their texts, and retry invalid samples up to `retries` times.

    Retry k uses the seed derive(seed of the sample, k). `max_time` limits the time of all attempts together.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._validators = PerSpec(OutputValidator)
        # By id, during first attempts: requests, and the number of samples that have not ended theirs.
        self._submitted: dict[str, tuple[Request, OutputSpec | None, int]] = {}
        self._retries: dict[tuple[str, int], _Attempt] = {}  # retries by the engine's request id and sample

    def submit(self, request: Request, structure: OutputSpec | None = None) -> None:
        """Queue a request; `structure` validates its texts, if given."""
        self._engine.submit(request)
        self._submitted[request.id] = request, structure, request.n

    def run(self, *, is_merged: bool = False) -> Iterator[Event]:
        """Yield the events of all requests, under their own ids, each finish with its verdict.

        More may be submitted between two events. `is_merged`: as in Engine.run.
        """
        for event in self._engine.run(is_merged=is_merged):
            yield from self._process(event)

    @property
    def notices(self) -> list[str]:
        """The notices of the engine; whoever shows them may remove them."""
        return self._engine.notices

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return self._engine.has_work

    def step(self) -> list[Event]:
        """Run one step of the engine; return its events as `run` would. For the caller's own loop."""
        return [processed for event in self._engine.step() for processed in self._process(event)]

    def cancel(self, request_id: str) -> None:
        """End all samples of a request, retries too, at the next step (reason `interrupted`)."""
        for (name, _), attempt in self._retries.items():
            if attempt.request.id == request_id:
                self._engine.cancel(name)
        self._engine.cancel(request_id)

    def end_waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        for event in self._engine.end_waiting():
            yield from self._process(event)

    def _process(self, event: Event) -> Iterator[Event]:
        more = event.more if isinstance(event, Finish) else 0
        key, num_ended = (event.request, event.sample), isinstance(event, Finish | Error) + more
        if key in self._retries:
            attempt = self._retries.pop(key) if num_ended else self._retries[key]
        else:
            request, structure, num_open = self._submitted.pop(event.request)
            if num_open > num_ended:
                self._submitted[event.request] = request, structure, num_open - num_ended
            attempt = _Attempt(request, structure, event.sample)
        if attempt.number > 1:
            event = replace(event, request=attempt.request.id, sample=attempt.sample)
        if isinstance(event, Finish):
            event = self._validators(attempt.structure)(event, attempt.request.marker)
            if event.verdict is not None:
                event = replace(event, verdict=replace(event.verdict, attempts=attempt.number))
        # Samples that ended before they began (`more`) leave no time for another attempt.
        if not isinstance(event, Finish | Error) or more or not self._retry(event, attempt):
            yield event

    def _retry(self, end: Finish | Error, attempt: _Attempt) -> bool:
        """Queue another attempt if one is left and may give a valid result; return whether it was queued."""
        request, limits, seconds = attempt.request, attempt.request.limits, attempt.seconds
        if attempt.structure is None or attempt.number > attempt.structure.retries:
            return False
        if isinstance(end, Finish):
            if end.verdict is None or end.verdict.is_valid or end.reason == "interrupted":
                return False
            seconds += end.timings.first_token + end.timings.decode
        elif end.type != "EmptySupport":
            return False
        if limits.max_time is not None:
            if seconds >= limits.max_time:
                return False
            limits = replace(limits, max_time=limits.max_time - seconds)
        name = f"{request.id}/{attempt.sample}/{attempt.number}"
        seed = derive(derive(request.seed, attempt.sample), attempt.number)
        self._engine.submit(replace(request, id=name, seed=seed, n=1, limits=limits, prompt_logprobs=None))
        self._retries[name, 0] = replace(attempt, number=attempt.number + 1, seconds=seconds)
        return True
