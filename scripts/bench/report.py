"""What the benchmarks of this folder share: options, and how one is run as a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from gencli.cli.app import explained
from gencli.cli.commands.bench import help_of
from gencli.runtime.machine import quiet_libraries

LogitRows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows", min=1, max=1024, metavar="N", help="Rows of logits; 1, 8 and 32 if not given. (repeatable)"
    ),
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, max=10_000, metavar="N", help="Rounds.")]


def run_benchmark(
    function: Callable[..., int], measures: str, record: type[Any], arguments: Sequence[str] | None = None
) -> int:
    """Run the function with options, those of the command line if None; return its exit code."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.command(help=help_of(measures, record))(function)
    given = sys.argv[1:] if arguments is None else [*arguments]
    return explained(lambda: app(given, standalone_mode=False) or 0, given)


@contextmanager
def measuring(threads: int) -> Iterator[None]:
    """Keep the libraries quiet and set the number of PyTorch's CPU threads. Imports torch."""
    with quiet_libraries():
        import torch

        torch.set_num_threads(threads)
        yield
