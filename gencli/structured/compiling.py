"""From a plan to a compiled grammar: the variants in their order, until one compiles within its limits."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gencli.errors import ConfigError
from gencli.structured.plan import Plan, Variant
from processors.base import Compiler
from processors.errors import GrammarError

__all__ = ["Compiled", "compile_plan"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The variant that runs, the seconds that compiling took, and why others before it do not run."""

    variant: Variant
    seconds: float
    passed_over: tuple[str, ...] = ()


def compile_plan(plan: Plan, compiler: Compiler) -> Compiled:
    """Compile the first variant that compiles. ConfigError with all reasons if none does."""
    begin, reasons = time.monotonic(), []
    for variant in plan.variants:
        try:
            compiler.compile(variant.constraint)
        except GrammarError as error:
            reasons.append(f"{variant.constraint.backend}: {error}")
        else:
            return Compiled(variant, time.monotonic() - begin, tuple(reasons))
    raise ConfigError(
        "No back end compiles the grammar. " + " ".join(reasons),
        hint="Make it smaller, or give it more time with --grammar-timeout.",
    )
