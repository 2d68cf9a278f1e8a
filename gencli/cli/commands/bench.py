"""`gencli bench`: measure the cost of parts of gencli on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gencli.cli.commands.bench_run import runs
from gencli.cli.commands.bench_sampler import sampler
from gencli.cli.commands.bench_serve import serve
from gencli.cli.commands.bench_speculate import speculate
from gencli.cli.commands.bench_step import step
from gencli.cli.terminal.records import FORMS, record_text
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.tables import table
from gencli.runtime.quiet import quiet_libraries

if TYPE_CHECKING:
    from gencli.bench.batch import BatchCost

__all__ = ["command"]

_MOST = 1_000_000
_HEAD = ("back end", "rows", "compile ms", "fill ms", "apply ms", "step ms", "free step ms", "ratio")
_BATCH_HEAD = ("prefix", "way", "seconds", "tok/s", "times gencli's", "same ids", "occupancy")
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
        help="Samples side by side; 1 and 16 if not given. (repeatable)",
    ),
]
_Steps = Annotated[int, typer.Option("--steps", min=1, max=_MOST, metavar="N", help="Steps that are timed.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
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
_Format = Annotated[FORMS, typer.Option("--format", help="Form of the result.")]


def command() -> typer.Typer:
    """Return the typer group of the benchmarks."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help="Measure what parts of gencli cost on this machine.")(lambda: None)
    app.command("run", help="Whole runs, each in a process of its own, in turns with transformers and "
                 "llama.cpp.")(runs)  # fmt: skip
    app.command("grammar", help="A step with a JSON schema against one without, on a random model of 15M "
                 "parameters with a vocabulary of 32,000.")(_grammar)  # fmt: skip
    app.command("batch", help="Requests of unequal length in gencli's batches, transformers' padded "
                 "generate() and generate_batch(), on a random model of 15M parameters.")(_batch)  # fmt: skip
    app.command("sampler", help="A chain and its draw on the logits of a step, beside transformers' logits "
                "processors and multinomial, and beside torch.logsumexp.")(sampler)  # fmt: skip
    app.command(
        "serve",
        help="The server under a load of streams, closed or open loop, beside the engine alone: "
        "tokens per second, times to and between tokens.",
    )(serve)
    app.command("speculate", help="Steps with drafts against plain ones, by the number of drafts and of "
                 "texts, beside what the formula expects.")(speculate)  # fmt: skip
    app.command("step", help="A decode step of the engine without a model, by the number of texts and their "
                 "chain.")(step)  # fmt: skip
    return app


def _grammar(
    backend: _Backends = None, rows: _Rows = None, steps: _Steps = 200, threads: _Threads = 1
) -> int:
    with quiet_libraries():
        import torch

        from gencli.bench.grammar import measure
        from gencli.bench.llama import random_llama

        torch.set_num_threads(threads)
        model = random_llama()
        lines: list[tuple[str, ...]] = [_HEAD]
        for name in backend or ("xgrammar", "llguidance"):
            for count in rows or (1, 16):
                cost = measure(model, name, count, steps)
                figures = (cost.compile, cost.fill, cost.apply, cost.step, cost.free, cost.ratio)
                lines.append((name, str(count), *(f"{figure:.3f}" for figure in figures)))
    Sink().write(table(lines))
    say(f"float32, {threads} thread(s), medians of {steps} steps; the two kinds of step take turns.")
    return 0


def _batch(
    requests: _Requests = 256,
    prefix: _Prefix = None,
    max_batch: _Slots = 16,
    their_batch: _TheirSlots = 16,
    repeats: _Repeats = 1,
    threads: _Threads = 2,
    form: _Format = "text",
) -> int:
    with quiet_libraries():
        import torch

        from gencli.bench.batch import measure_batch

        torch.set_num_threads(threads)
        costs = [
            cost
            for length in prefix or (0, 200)
            for cost in measure_batch(
                requests=requests, prefix=length, slots=max_batch, their_slots=their_batch, repeats=repeats
            )
        ]
    if form != "text":
        Sink().write(record_text([asdict(cost) for cost in costs], form))
        return 0
    lines = [_BATCH_HEAD, *map(_batch_line, costs)]
    Sink().write(table(lines))
    say(
        f"float32, {threads} thread(s), {requests} requests, {repeats} round(s); "
        f"{max_batch} at once in gencli, {their_batch} in transformers."
    )
    return 0


def _batch_line(cost: BatchCost) -> tuple[str, ...]:
    figures = (f"{cost.seconds:.2f}", f"{cost.tokens_per_second:.0f}", f"{cost.ratio:.2f}", str(cost.equal))
    occupancy = "" if cost.occupancy is None else f"{cost.occupancy:.1%}"
    return str(cost.prefix), cost.way, *figures, occupancy
