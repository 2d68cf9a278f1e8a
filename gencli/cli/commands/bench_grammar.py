"""`gencli bench grammar`: a decode step with a JSON schema, compared to a step without."""

from __future__ import annotations

from typing import Annotated

import typer

from gencli.cli.commands.bench_report import Form, Threads, measuring, write_report

__all__ = ["grammar"]

_MOST = 1_000_000
_Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--back-end", metavar="NAME", help="xgrammar or llguidance; both if not given. (repeatable)"
    ),
]
_Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows",
        min=1,
        max=_MOST,
        metavar="N",
        help="Texts side by side; 1 and 16 if not given. (repeatable)",
    ),
]
_Steps = Annotated[int, typer.Option("--steps", min=1, max=_MOST, metavar="N", help="Steps that are timed.")]


def grammar(
    backend: _Backends = None,
    rows: _Rows = None,
    steps: _Steps = 200,
    threads: Threads = 1,
    form: Form = "text",
) -> int:
    """Measure each back end with each number of rows and print the costs. Return the exit code."""
    with measuring(threads):
        from gencli.bench.grammar import measure
        from gencli.bench.llama import random_llama

        model = random_llama()
        costs = [
            measure(model, name, count, steps)
            for name in backend or ("xgrammar", "llguidance")
            for count in rows or (1, 16)
        ]
    write_report(costs, form, conditions={"dtype": "float32", "threads": threads, "steps": steps})
    return 0
