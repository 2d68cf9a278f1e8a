"""`gencli bench run`: whole runs in turns with transformers and llama.cpp."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gencli.bench.runs import Run, measure_runs, ways_of
from gencli.cli.terminal.records import FORMS, record_text
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.tables import table
from gencli.config.options.option import MAX_BATCH
from gencli.errors import UsageError
from gencli.models.files.locate import find_local

__all__ = ["runs"]

_HEAD = ("way", "start s", "whole s", "tok/s", "peak MiB", "start", "whole", "speed")
_Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="A bundled model or a model folder.")]
_Tokens = Annotated[
    int, typer.Option("--max-tokens", min=3, max=100_000, metavar="N", help="Output tokens of a text.")
]
_Rows = Annotated[int, typer.Option("--rows", min=1, max=MAX_BATCH, metavar="N", help="Prompts of a run.")]
_Turns = Annotated[int, typer.Option("--turns", min=1, max=1000, metavar="N", help="Turns.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
_Dtype = Annotated[str, typer.Option("--dtype", metavar="NAME", help="Number format, as in gencli run.")]
_Flags = Annotated[str, typer.Option("--flags", metavar="TEXT", help="More flags of gencli run.")]
_Gguf = Annotated[
    Path | None,
    typer.Option("--gguf", metavar="FILE", help="The model for llama.cpp, which has to be installed."),
]
_Format = Annotated[FORMS, typer.Option("--format", help="Form of the result.")]


def runs(
    model: _Model = "tiny",
    max_tokens: _Tokens = 64,
    rows: _Rows = 1,
    turns: _Turns = 3,
    threads: _Threads = 2,
    dtype: _Dtype = "float32",
    flags: _Flags = "",
    gguf: _Gguf = None,
    form: _Format = "text",
) -> int:
    """Measure whole runs and print their table."""
    folder = find_local(model)
    if folder is None:
        raise UsageError(f"--model is {model}, which is not on this machine.")
    if gguf is not None and rows > 1:
        raise UsageError("--gguf goes with --rows 1: llama.cpp's Python API runs one text at a time.")
    run = Run(max_tokens, rows, threads)
    costs = list(measure_runs(ways_of(str(folder), run, flags=flags, dtype=dtype, gguf=gguf), run, turns))
    if form != "text":
        Sink().write(record_text([asdict(cost) for cost in costs], form))
        return 0
    lines: list[tuple[str, ...]] = [_HEAD]
    for cost in costs:
        times = (f"{cost.start:.2f}", f"{cost.whole:.2f}", f"{cost.speed:.1f}", f"{cost.peak / 2**20:.0f}")
        ratios = (cost.start_ratio, cost.whole_ratio, cost.speed_ratio)
        lines.append((cost.way, *times, *(f"{ratio:.3f}" for ratio in ratios)))
    Sink().write(table(lines))
    say(
        f"{dtype}, {threads} thread(s), {rows} prompt(s), {max_tokens} tokens each, medians of {turns} "
        "turn(s). start: a process with two tokens. The last three columns are over gencli's."
    )
    return 0
