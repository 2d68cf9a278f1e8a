"""`gencli bench batch`: many requests of unequal length, in gencli and in transformers."""

from __future__ import annotations

from typing import Annotated

import typer

from gencli.cli.commands.bench_report import Form, Threads, measuring, write_report

__all__ = ["batch"]

_MOST = 1_000_000
_Requests = Annotated[
    int, typer.Option("--requests", min=2, max=_MOST, metavar="N", help="Requests of the load.")
]
_Prefix = Annotated[
    list[int] | None,
    typer.Option(
        "--prefix",
        min=0,
        max=_MOST,
        metavar="N",
        help="Tokens that all prompts begin with; 0 and 200 if not given. (repeatable)",
    ),
]
_Slots = Annotated[
    int, typer.Option("--max-batch", min=1, max=_MOST, metavar="N", help="Samples that gencli runs at once.")
]
_TheirSlots = Annotated[
    int,
    typer.Option(
        "--their-batch", min=1, max=_MOST, metavar="N", help="Samples that transformers runs at once."
    ),
]
_Repeats = Annotated[int, typer.Option("--repeats", min=1, max=_MOST, metavar="N", help="Rounds.")]


def batch(
    requests: _Requests = 256,
    prefix: _Prefix = None,
    max_batch: _Slots = 16,
    their_batch: _TheirSlots = 16,
    repeats: _Repeats = 1,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure the load with each common prefix and print the costs. Return the exit code."""
    with measuring(threads):
        from gencli.bench.batch import measure_batch

        costs = [
            cost
            for length in prefix or (0, 200)
            for cost in measure_batch(
                requests=requests, prefix=length, slots=max_batch, their_slots=their_batch, repeats=repeats
            )
        ]
    conditions = {
        "dtype": "float32",
        "threads": threads,
        "rounds": repeats,
        "max_batch": max_batch,
        "their_batch": their_batch,
    }
    write_report(costs, form, conditions=conditions)
    return 0
