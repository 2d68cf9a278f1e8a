"""`gencli bench step`: time of a decode step of the engine without a model."""

from __future__ import annotations

from typing import Annotated

import typer

from gencli.cli.commands.bench_report import Form, Threads, measuring, write_report

__all__ = ["step"]

_MOST = 4096
_Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows",
        min=1,
        max=_MOST,
        metavar="N",
        help="Texts side by side; 1, 8, 32 and 128 if not given. (repeatable)",
    ),
]
_Steps = Annotated[
    int, typer.Option("--steps", min=1, max=100_000, metavar="N", help="Steps that are timed of each chain.")
]
_Vocabulary = Annotated[
    int, typer.Option("--vocab", min=300, max=_MOST, metavar="N", help="Number of token ids of the model.")
]


def step(
    rows: _Rows = None,
    steps: _Steps = 200,
    vocab: _Vocabulary = 1000,
    threads: Threads = 1,
    form: Form = "text",
) -> int:
    """Measure steps at each number of rows with each chain, and print their times. Return the exit code."""
    with measuring(threads):
        from gencli.bench.step import measure_steps

        costs = [
            cost
            for count in rows or (1, 8, 32, 128)
            for cost in measure_steps(count, steps, vocab_size=vocab)
        ]
    conditions = {"dtype": "float32", "threads": threads, "steps": steps, "vocab": vocab}
    write_report(costs, form, conditions=conditions)
    return 0
