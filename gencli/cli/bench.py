"""`gencli bench`: what parts of gencli cost on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from gencli.cli.quiet import quiet_libraries
from gencli.cli.render import Sink, say
from gencli.cli.tables import table

__all__ = ["command"]

_HEAD = ("back end", "rows", "compile ms", "fill ms", "apply ms", "step ms", "free step ms", "ratio")
_Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--back-end", metavar="NAME", help="xgrammar or llguidance; both if not given. (repeatable)"
    ),
]
_Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows", min=1, metavar="N", help="Samples side by side; 1 and 16 if not given. (repeatable)"
    ),
]
_Steps = Annotated[int, typer.Option("--steps", min=1, metavar="N", help="Steps that are timed.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, metavar="N", help="CPU threads.")]


def command() -> typer.Typer:
    """The benchmarks."""
    made = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    made.callback(help="Measure what parts of gencli cost on this machine.")(lambda: None)
    made.command("grammar", help="A step with a JSON schema against one without, on a random model of 15M "
                 "parameters with a vocabulary of 32,000.")(_grammar)  # fmt: skip
    return made


def _grammar(
    backend: _Backends = None, rows: _Rows = None, steps: _Steps = 200, threads: _Threads = 1
) -> int:
    with quiet_libraries():
        import torch

        from gencli.bench.grammar import measure
        from gencli.bench.llama import random_llama

        torch.set_num_threads(threads)
        model = random_llama()
        lines: list[tuple[str, ...]] = [_HEAD]
        for name in backend or ("xgrammar", "llguidance"):
            for count in rows or (1, 16):
                cost = measure(model, name, count, steps)
                figures = (cost.compile, cost.fill, cost.apply, cost.step, cost.free, cost.ratio)
                lines.append((name, str(count), *(f"{figure:.3f}" for figure in figures)))
    Sink().write(table(lines))
    say(f"float32, {threads} thread(s), medians of {steps} steps; the two kinds of step take turns.")
    return 0
