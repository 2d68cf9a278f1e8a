"""`gencli bench speculate`: the speedup of drafts by the number of drafts and of rows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gencli.cli.commands.bench_report import Form, Threads, measuring, write_report
from gencli.cli.terminal.records import FORMS
from gencli.cli.terminal.render import say_notice
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.options.option import MAX_BATCH
from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, read_file
from processors.conversion import whole

if TYPE_CHECKING:
    from gencli.bench.records import DraftGain

__all__ = ["speculate"]

_STORIES = ("Once upon a time", "Mood: happy\nStory:", "One day a girl found a box.", "Dear Mia,")
_Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="The target model.")]
_Draft = Annotated[str, typer.Option("--draft", metavar="NAME", help="The drafter, as in gencli run.")]
_Drafts = Annotated[
    str, typer.Option("--draft-tokens", metavar="LIST", help="Numbers of drafts: 0..8, or 1,2,4.")
]
_Rows = Annotated[str, typer.Option("--rows", metavar="LIST", help="Numbers of texts side by side.")]
_Tokens = Annotated[
    int, typer.Option("--max-tokens", min=8, max=1_000_000, metavar="N", help="Tokens of a text.")
]
_Steps = Annotated[
    int, typer.Option("--steps", min=1, max=1_000_000, metavar="N", help="Steps that are timed of each kind.")
]
_Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts", metavar="FILE", help='JSON lines with "prompt"; beginnings of stories if not given.'
    ),
]
_Temperature = Annotated[
    float, typer.Option("--temperature", min=0.0, max=1e6, metavar="T", help="0 is greedy.")
]
_Dtype = Annotated[
    str, typer.Option("--dtype", metavar="NAME", help="Type of the weights, as in gencli run.")
]
_Cpu = Annotated[
    bool, typer.Option("--cpu-time", help="Count the CPU seconds of the process, for a busy machine.")
]


def speculate(
    model: _Model = "tiny",
    draft: _Draft = "tiny-draft",
    draft_tokens: _Drafts = "0..8",
    rows: _Rows = "1,4,16",
    max_tokens: _Tokens = 128,
    steps: _Steps = 20,
    prompts: _Prompts = None,
    temperature: _Temperature = 0.0,
    dtype: _Dtype = "float32",
    threads: Threads = 1,
    cpu_time: _Cpu = False,
    form: Form = "text",
) -> int:
    """Measure plain steps and steps with drafts in turns and print the gains. Return the exit code.

    Raises UsageError for a bad list of numbers, for --draft none and for --prompts that cannot be read.
    """
    lengths, counts = _numbers("--draft-tokens", draft_tokens, 0, 64), _numbers("--rows", rows, 1, MAX_BATCH)
    if draft == NO_DRAFTER:
        raise UsageError("--draft is none, so there is nothing to measure.", hint="Name a drafter.")
    texts = _read(prompts) if prompts else _STORIES
    with measuring(threads):
        gains = _gains(
            model,
            draft,
            texts,
            counts,
            dtype=dtype,
            lengths=lengths,
            steps=steps,
            max_tokens=max_tokens,
            temperature=temperature,
            clock=time.process_time if cpu_time else time.perf_counter,
        )
    conditions = {
        "model": model,
        "draft": draft,
        "dtype": dtype,
        "threads": threads,
        "temperature": temperature,
        "steps": steps,
        "clock": "CPU seconds" if cpu_time else "seconds",
    }
    _write(gains, form, conditions)
    return 0


def _gains(
    model: str,
    draft: str,
    texts: Sequence[str],
    counts: Sequence[int],
    *,
    dtype: str,
    **probing: Any,
) -> list[DraftGain]:
    """Return the gains for each number of rows; `probing` are further arguments of `measure_drafts`."""
    from gencli.bench.speculate import measure_drafts
    from gencli.runtime.drafters import bare_drafter
    from gencli.runtime.models import ModelChoice, load

    choice = ModelChoice(model, dtype=dtype, max_batch=max(counts))
    loaded = load(choice)
    drafter = bare_drafter(draft, loaded, choice)
    for text in drafter.notices:
        say_notice(text)
    return [
        gain
        for count in counts
        for gain in measure_drafts(loaded.runner, loaded.tokenizer, drafter, texts, rows=count, **probing)
    ]


def _write(gains: Sequence[DraftGain], form: FORMS, conditions: Mapping[str, Any]) -> None:
    from gencli.bench.speculate import best, break_even

    tops, even = best(gains), break_even(gains)
    lines = [
        f"Best with {top.rows} row(s): {top.drafts} drafts, {top.speedup:.2f} times plain." for top in tops
    ]
    write_report(
        gains,
        form,
        conditions=conditions,
        summary={"best": {str(top.rows): top.drafts for top in tops}, "break_even_rows": even},
        lines=[*lines, _verdict(even, tops[-1].rows)],
    )


def _verdict(even: float | None, most: int) -> str:
    if even is None:
        return f"Break-even: beyond {most} row(s)."
    return f"Break-even: at about {even:.0f} row(s)." if even else "Break-even: drafts lose with any rows."


def _numbers(flag: str, given: str, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of a range "0..8" or of a list "1,4,16". Raises UsageError outside [least, most]."""
    first, dots, last = given.partition("..")
    parts = [first, last] if dots else given.split(",")
    numbers = [number for part in parts if (number := whole(part.strip())) is not None]
    if len(numbers) < len(parts):
        raise UsageError(f"{flag} {given[:60]!r} is no list of numbers.", hint="Write 0..8, or 1,4,16.")
    if min(numbers) < least or max(numbers) > most:
        raise UsageError(f"{flag} {given!r} has to name numbers from {least} to {most}.")
    if dots and numbers[0] > numbers[1]:
        raise UsageError(f"{flag} {given!r} runs backwards.", hint=f"Write {numbers[1]}..{numbers[0]}.")
    return tuple(range(numbers[0], numbers[1] + 1)) if dots else tuple(numbers)


def _read(path: Path) -> tuple[str, ...]:
    try:
        lines = read_file(path, MAX_PROMPT, pipes=True).decode().splitlines()
        return tuple(json.loads(line)["prompt"] for line in lines if line.strip())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--prompts {path} cannot be read as JSON lines with prompts: {error}") from None
