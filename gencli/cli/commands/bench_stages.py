"""`gencli bench stages`: what each stage costs, beside torch.logsumexp."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from gencli.cli.commands.bench_report import Form, LogitRows, Repeats, Threads, measuring, write_report
from gencli.config.tab_words import stage_names
from gencli.errors import UsageError
from processors.catalog import BUILTIN
from processors.errors import nearest

__all__ = ["stages"]

_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STAGE...", help="Built-in stages; all if none is given.", autocompletion=stage_names
    ),
]
_Width = Annotated[int, typer.Option("--width", min=512, max=1 << 20, metavar="N", help="Ids of a row.")]
_History = Annotated[
    int, typer.Option("--history", min=1, max=1 << 20, metavar="N", help="Tokens of each prompt.")
]
_Logits = Annotated[
    Literal["peaked", "flat"],
    typer.Option("--logits", help="peaked: as of a language model; flat: normal of deviation 0.1."),
]


def stages(
    name: _Names = None,
    rows: LogitRows = None,
    width: _Width = 151_936,
    history: _History = 8192,
    logits: _Logits = "peaked",
    repeats: Repeats = 7,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure stages one by one and print the costs. Return the exit code.

    Raises UsageError for an unknown stage.
    """
    known = [spec.name for spec in BUILTIN]
    for one in name or ():
        if one not in known:
            raise UsageError(f"There is no built-in stage {one[:60]!r}.", hint=nearest(one, known))
    with measuring(threads):
        from gencli.bench.stages import measure_stages

        costs = [*measure_stages(name or known, rows or (1, 8, 32), width, history, logits, repeats)]
    conditions = {"width": width, "history": history, "logits": logits, "threads": threads, "rounds": repeats}
    write_report(costs, form, conditions=conditions)
    return 0
