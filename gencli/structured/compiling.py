"""From a plan to a compiled grammar: the variants in their order, until one compiles within its limits."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gencli.errors import ConfigError
from gencli.models.resolve import Loaded
from gencli.structured.plan import Plan, Variant
from gencli.structured.wanted import Structure
from gencli.tokenizer import Tokenizer
from processors.base import Compiler, Env
from processors.errors import GrammarError
from processors.grammar.compiler import GrammarCompiler

__all__ = ["Compiled", "Compiling", "compile_plan", "grammar_env", "make_compiler"]


_PART = 0.75  # of the time, for a variant behind which others stand


@dataclass(frozen=True, slots=True)
class Compiled:
    """The variant that runs, the seconds that compiling took, and why others before it do not run.

    `warnings` are the back end's own.
    """

    variant: Variant
    seconds: float
    passed_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def compile_plan(plan: Plan, compiler: Compiler) -> Compiled:
    """Compile the first variant that compiles. ConfigError with all reasons if none does.

    All of them together have the plan's seconds; a part is kept for those that come later.
    """
    begin = time.monotonic()
    reasons: list[str] = []
    for variant in plan.variants:
        left = max(0.0, plan.seconds - (time.monotonic() - begin))
        if reasons and not left:
            reasons.append(f"{variant.constraint.backend}: no time was left for it.")
            continue
        try:
            part = left if variant is plan.variants[-1] else _PART * left
            grammar = compiler.compile(variant.constraint, part)
        except GrammarError as error:
            reasons.append(f"{variant.constraint.backend}: {error}")
        else:
            seconds = time.monotonic() - begin
            return Compiled(variant, seconds, tuple(reasons), grammar.warnings)
    raise ConfigError(
        f"No back end compiles the grammar. {' '.join(reasons)}",
        hint="Make it smaller, or give it more time with --grammar-timeout.",
    )


def grammar_env(loaded: Loaded) -> Env:
    """The vocabulary of a loaded model, as grammars are compiled for it."""
    eos_ids = tuple(sorted({*loaded.runner.spec.eos_ids, *loaded.tokenizer.eos_ids}))
    return Env(loaded.runner.spec.vocab_size, loaded.tokenizer, eos_ids)


def make_compiler(env: Env, timeout: float) -> GrammarCompiler:
    """What compiles the grammars of a run, with the user's cache of grammars."""
    from platformdirs import user_cache_path

    return GrammarCompiler(env, timeout=timeout, cache_dir=Path(user_cache_path("gencli")) / "grammars")


class Compiling:
    """Compiles a run's grammar on a thread while the model loads.

    `begin` is told what the tokenizer and the model's configuration say of the vocabulary; what the
    loaded model says decides. Where that is something else, the grammar is compiled anew.
    """

    def __init__(self, structure: Structure | None, timeout: float) -> None:
        self._structure, self._timeout = structure, timeout
        self._compiler: GrammarCompiler | None = None
        self._found: Future[Compiled] | None = None

    def begin(self, tokenizer: Tokenizer, width: int, eos_ids: tuple[int, ...]) -> None:
        """Start compiling, if there is anything to compile."""
        if self._structure is None:
            return
        self._compiler = make_compiler(Env(width, tokenizer, eos_ids), self._timeout)
        thread = ThreadPoolExecutor(1, "grammar")
        self._found = thread.submit(compile_plan, self._structure.plan, self._compiler)
        thread.shutdown(wait=False)

    def finish(self, loaded: Loaded) -> tuple[GrammarCompiler, Compiled | None]:
        """The compiler for the loaded model, and the run's grammar. ConfigError if there is none."""
        early, env = self._compiler, grammar_env(loaded)
        if early is None or (early.env.width, early.env.eos_ids) != (env.width, env.eos_ids):
            self._compiler, self._found = make_compiler(env, self._timeout), None
        assert self._compiler is not None
        if self._structure is None:
            return self._compiler, None
        if self._found is not None:
            return self._compiler, self._found.result()
        return self._compiler, compile_plan(self._structure.plan, self._compiler)

    def close(self) -> None:
        """End what still runs for it."""
        if self._compiler is not None:
            self._compiler.close()
