"""`gencli bench serve`: the server under load, beside the engine alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gencli.cli.terminal.records import FORMS, record_text
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.tables import table
from gencli.runtime.quiet import quiet_libraries

if TYPE_CHECKING:
    from gencli.bench.serve import ServeCost

__all__ = ["serve"]

_MOST = 100_000
_HEAD = ("way", "s", "tokens", "tokens/s", "first p50 ms", "p99", "between p50 ms", "p99")
_Model = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="Model to serve.")]
_Requests = Annotated[int, typer.Option("--requests", min=1, max=_MOST, metavar="N", help="Requests.")]
_Clients = Annotated[
    int, typer.Option("--clients", min=1, max=_MOST, metavar="N", help="Clients of the closed loop.")
]
_Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.001, metavar="NUMBER", help="Open loop: requests per second, at random times."
    ),
]
_Slots = Annotated[int, typer.Option("--max-batch", min=1, max=_MOST, metavar="N", help="Texts at once.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
_Format = Annotated[FORMS, typer.Option("--format", help="Form of the result.")]


def serve(
    model: _Model = "tiny",
    requests: _Requests = 64,
    clients: _Clients = 16,
    rate: _Rate = None,
    max_batch: _Slots = 8,
    threads: _Threads = 2,
    form: _Format = "text",
) -> int:
    """Measure and print both; the exit code is 0."""
    with quiet_libraries():
        from gencli.bench.serve import measure_engine, measure_serve

        served = measure_serve(
            model, requests=requests, clients=clients, slots=max_batch, threads=threads, rate=rate
        )
        alone = measure_engine(model, requests=requests, slots=max_batch, threads=threads)
    if form != "text":
        Sink().write(record_text([asdict(cost) for cost in (served, alone)], form))
        return 0
    Sink().write(table([_HEAD, *map(_line, (served, alone))]))
    loop = f"{clients} clients" if rate is None else f"{rate:g} requests/s"
    share = served.tokens_per_second / alone.tokens_per_second
    say(f"{requests} requests, {loop}, {max_batch} texts at once; serve has {share:.2f} of its speed.")
    return 0


def _line(cost: ServeCost) -> tuple[str, ...]:
    times = (cost.first_p50, cost.first_p99, cost.between_p50, cost.between_p99)
    shown = ("" if seconds is None else f"{1000 * seconds:.1f}" for seconds in times)
    return cost.way, f"{cost.seconds:.2f}", str(cost.tokens), f"{cost.tokens_per_second:.0f}", *shown
