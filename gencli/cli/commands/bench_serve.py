"""`gencli bench serve`: the server under load, beside the engine alone."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gencli.cli.commands.bench_report import Form, Threads, measuring, write_report
from gencli.runtime.waiting import set_wait

__all__ = ["serve", "serve_command"]

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


def serve_command(model: str, *, max_batch: int, threads: int) -> list[str]:
    """Return the command that starts the server on a free port, with a queue that never is full."""
    flags = ["--model", model, "--port", "0", "--max-batch", str(max_batch), "--threads", str(threads)]
    flags += ["--max-queue", "100000", "--queue-timeout", "100000"]
    return [sys.executable, "-m", "gencli", "serve", *flags]


def serve(
    model: _Model = "tiny",
    requests: _Requests = 64,
    clients: _Clients = 16,
    rate: _Rate = None,
    max_batch: _Slots = 8,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure the server, then the engine, and print both. Return the exit code."""
    set_wait("auto", os.environ)  # before torch is imported, as the server does
    with measuring(threads):
        from gencli.bench.serve import measure_engine, measure_serve

        command = serve_command(model, max_batch=max_batch, threads=threads)
        served = measure_serve(command, requests=requests, clients=clients, rate=rate)
        alone = measure_engine(model, requests=requests, slots=max_batch, threads=threads)
    share = served.tokens_per_second / alone.tokens_per_second
    loop = {"clients": clients} if rate is None else {"rate": rate}
    conditions = {"model": model, "threads": threads, "requests": requests, "max_batch": max_batch, **loop}
    lines = [f"The server has {share:.2f} of the engine's tokens per second."]
    write_report([served, alone], form, conditions=conditions, summary={"share": share}, lines=lines)
    return 0
