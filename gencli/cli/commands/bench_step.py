"""`gencli bench step`: time of a decode step of the engine without a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gencli.cli.terminal.records import FORMS, record_text
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.tables import table
from gencli.runtime.quiet import quiet_libraries

if TYPE_CHECKING:
    from gencli.bench.step import StepCost

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
_Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
_Format = Annotated[FORMS, typer.Option("--format", help="Form of the result.")]


def step(
    rows: _Rows = None,
    steps: _Steps = 200,
    vocab: _Vocabulary = 1000,
    threads: _Threads = 1,
    form: _Format = "text",
) -> int:
    """Measure steps at each number of rows with each chain, and print their times. Return the exit code."""
    with quiet_libraries():
        import torch

        from gencli.bench.step import CHAINS, measure_steps

        torch.set_num_threads(threads)
        costs = [
            cost
            for count in rows or (1, 8, 32, 128)
            for cost in measure_steps(count, steps, vocab_size=vocab)
        ]
    if form != "text":
        Sink().write(record_text([asdict(cost) for cost in costs], form))
        return 0
    Sink().write(table(_lines(costs, [*CHAINS])))
    say(f"Milliseconds a step, medians of {steps}; {vocab} token ids, {threads} thread(s), no model.")
    return 0


def _lines(costs: list[StepCost], chains: list[str]) -> list[tuple[str, ...]]:
    """One line for each number of rows, with a column for each chain."""
    found = {(cost.rows, cost.chain): f"{cost.step:.3f}" for cost in costs}
    numbers = dict.fromkeys(cost.rows for cost in costs)
    lines = [(str(count), *(found[count, chain] for chain in chains)) for count in numbers]
    return [("rows", *chains), *lines]
