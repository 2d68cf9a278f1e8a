"""Output of `gencli bench`: a table or a report, from the same records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, asdict, fields
from typing import Annotated, Any

import typer

from gencli.cli.terminal.records import FORMS, record_text
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.tables import table
from gencli.runtime.quiet import quiet_libraries

__all__ = ["Form", "LogitRows", "Repeats", "Threads", "cells", "help_of", "measuring", "write_report"]

# Options that the benchmarks share.
Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
LogitRows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows", min=1, max=1024, metavar="N", help="Rows of logits; 1, 8 and 32 if not given. (repeatable)"
    ),
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, max=10_000, metavar="N", help="Rounds.")]
Form = Annotated[FORMS, typer.Option("--format", help="Form of the result.")]


def help_of(measures: str, kind: type[Any]) -> str:
    """Return the help of a benchmark: what it measures, and the columns of its records, a dataclass.

    The character \\b before the columns keeps click from wrapping their lines.
    """
    names = [one.name for one in fields(kind)]
    width = max(map(len, names)) + 2
    columns = "\n".join(f"    {one.name:<{width}}{one.metadata['about']}" for one in fields(kind))
    return f"{measures}\n\n\b\nColumns (with --format json or yaml: keys of each record):\n{columns}"


@contextmanager
def measuring(threads: int) -> Iterator[None]:
    """Keep the libraries quiet and set the number of PyTorch's CPU threads. Imports torch."""
    with quiet_libraries():
        import torch

        torch.set_num_threads(threads)
        yield


def write_report(
    records: Sequence[Any],
    form: FORMS,
    *,
    conditions: Mapping[str, Any],
    summary: Mapping[str, Any] | None = None,
    lines: Sequence[str] = (),
) -> None:
    """Write records of one dataclass to stdout: as a table with `lines` below it, or as a report.

    A report is {"conditions": ..., "records": [...], "summary": ...}. `summary`: results computed from
    several records; `lines`: the same in words. With a table the conditions go to stderr.
    """
    if form != "text":
        rows = [asdict(record) for record in records]
        report = {"conditions": dict(conditions), "records": rows, "summary": dict(summary or {})}
        Sink().write(record_text(report, form))
        return
    Sink().write(table(cells(records)))
    Sink().write("".join(f"{line}\n" for line in lines))
    say("Conditions: " + ", ".join(f"{name} {value}" for name, value in conditions.items()) + ".")


def cells(records: Sequence[Any]) -> Iterator[list[str]]:
    """Yield the lines of the table of these records, column names first."""
    columns = fields(records[0])
    yield [column.name for column in columns]
    for record in records:
        yield [_cell(getattr(record, column.name), column) for column in columns]


def _cell(value: Any, column: Field[Any]) -> str:
    if value is None:
        return "-"
    decimals = column.metadata["decimals"]
    return str(value) if decimals is None else f"{value:.{decimals}f}"
