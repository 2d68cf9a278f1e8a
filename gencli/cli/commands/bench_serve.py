"""`gencli bench serve`: the server under load, compared to a batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gencli.cli.commands.bench_report import Form, Threads, write_report

__all__ = ["batch_command", "serve", "serve_command"]

_MOST = 100_000
_Model = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="Model to serve.")]
_Requests = Annotated[int, typer.Option("--requests", min=1, max=_MOST, metavar="N", help="Requests.")]
_Clients = Annotated[
    int, typer.Option("--clients", min=1, max=_MOST, metavar="N", help="Clients of the closed loop.")
]
_Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="NUMBER", help="Open loop: this many requests per second."),
]
_Slots = Annotated[int, typer.Option("--max-batch", min=1, max=_MOST, metavar="N", help="Texts at once.")]
_Turns = Annotated[int, typer.Option("--turns", min=1, max=100, metavar="N", help="Turns of both ways.")]


def serve_command(model: str, *, max_batch: int, threads: int) -> list[str]:
    """Return the command that starts the server on a free port, with a queue that never fills."""
    queue = ["--max-queue", "100000", "--queue-timeout", "100000"]
    return [*_gencli("serve", model, max_batch, threads), "--port", "0", *queue]


def batch_command(folder: Path, model: str, *, max_batch: int, threads: int) -> list[str]:
    """Return the command of a batch of the rows in a folder."""
    files = [str(folder / "rows.jsonl"), "--output", str(folder / "out.jsonl")]
    files += ["--summary", str(folder / "summary.json")]
    return [*_gencli("batch", model, max_batch, threads), "--quiet", *files]


def _gencli(name: str, model: str, max_batch: int, threads: int) -> list[str]:
    flags = ["--model", model, "--max-batch", str(max_batch), "--threads", str(threads)]
    return [sys.executable, "-m", "gencli", name, *flags]


def serve(
    model: _Model = "tiny",
    requests: _Requests = 64,
    clients: _Clients = 16,
    rate: _Rate = None,
    max_batch: _Slots = 8,
    threads: Threads = 2,
    turns: _Turns = 3,
    form: Form = "text",
) -> int:
    """Measure the server and the batch alternately, and print both. Return the exit code."""
    from gencli.bench.serve import cost_of, in_turns, make_tasks, measure_batch, measure_serve, share_of

    load = make_tasks(requests)
    server = serve_command(model, max_batch=max_batch, threads=threads)
    found = in_turns(
        {
            "serve": lambda: measure_serve(server, load, clients=clients, rate=rate),
            "batch": lambda: measure_batch(
                lambda folder: batch_command(folder, model, max_batch=max_batch, threads=threads), load
            ),
        },
        turns,
    )
    share = share_of(found, "serve", "batch")
    loop = {"clients": clients} if rate is None else {"rate": rate}
    conditions = {"model": model, "threads": threads, "requests": requests, "max_batch": max_batch, **loop}
    lines = [f"The server has {share:.2f} of the batch's tokens per second."]
    costs = [cost_of(way, each) for way, each in found.items()]
    write_report(
        costs, form, conditions={**conditions, "turns": turns}, summary={"share": share}, lines=lines
    )
    return 0
