"""Measure each stage beside one pass over the logits.

python scripts/bench/stages.py --help
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import typer
from random_models import MadeTokenizer
from report import LogitRows, Repeats, measuring, run_benchmark
from sampler import made_logits, timed
from torch import Tensor

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.config.preset_files import stage_names
from gencli.errors import UsageError
from processors.base import Admission, Env
from processors.catalog import BUILTIN
from processors.chain import Chain, Stage
from processors.errors import ProcessorsError, nearest
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.testing.examples import examples


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage on the logits of one step, medians over the rounds; the copy of the logits is not counted."""

    stage: str = figure("name of the stage")
    values: str = figure("the stage with its values")
    rows: int = figure("rows of logits")
    stage_ms: float = figure("milliseconds of the stage", 3)
    logsumexp_ms: float = figure("milliseconds of a torch.logsumexp of the logits", 3)
    passes: float = figure("stage_ms / logsumexp_ms in the same round", 2)


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
        costs = [*measure_stages(name or known, rows or (1, 8, 32), width, history, logits, repeats)]
    conditions = {"width": width, "history": history, "logits": logits, "threads": threads, "rounds": repeats}
    write_report(costs, form, conditions=conditions)
    return 0


_COMMON = 500  # distinct ids of a history
_FITTING = {"bias": 'bias={"42": 1.5, "a": -2}'}  # examples adapted to the words of the made-up tokenizer
_AGAIN = 40  # last tokens that also occur earlier, for stages that look for repetitions


def measure_stages(
    names: Sequence[str], counts: Sequence[int], width: int, history: int, kind: str, repeats: int
) -> Iterator[StageCost]:
    """Yield the cost of each stage and number of rows; a stage and logsumexp take turns in each round.

    A stage has the values of its example in the catalogue; if these need texts that the made-up tokenizer
    lacks, the first accepted values of the contract kit. `history`: tokens of each prompt.
    """
    tokenizer = MadeTokenizer(width)
    env = Env(width, tokenizer, tokenizer.eos_ids)
    for rows in counts:
        logits = made_logits(kind, rows, width)
        prompts = [_prompt(row, history) for row in range(rows)]
        for name in names:
            yield _measured(name, env, prompts, logits, repeats)


def _measured(
    name: str, env: Env, prompts: Sequence[tuple[int, ...]], logits: Tensor, repeats: int
) -> StageCost:
    pipeline, store = Pipeline(env), History(slots=len(prompts))
    stage = _admitted(name, pipeline, prompts)
    for slot, prompt in enumerate(prompts):
        store.admit(slot, prompt, seed=slot)
    slots, work = range(len(prompts)), torch.empty_like(logits)

    def apply() -> None:
        rows = Rows.build(store, slots)
        pipeline.stage(name).prepare(rows)
        pipeline.stage(name).apply(work, rows)

    def scan() -> None:
        work.logsumexp(-1)

    rounds = []
    for number in range(repeats + 2):
        token = prompts[0][number % len(prompts[0])]
        store.append(slots, [(token,)] * len(prompts))  # a stage that follows the text has work in each step
        for slot in slots:
            pipeline.commit(slot, (token,))
        times = []
        for way in (apply, scan):
            work.copy_(logits)
            times.append(timed(way))
        rounds.append(times)
    ours, passes = (statistics.median(column) for column in zip(*rounds[2:], strict=True))
    ratio = statistics.median(one / two for one, two in rounds[2:])
    return StageCost(name, str(Chain((stage,))), len(logits), ours, passes, ratio)


def _admitted(name: str, pipeline: Pipeline, prompts: Sequence[tuple[int, ...]]) -> Stage:
    """Admit a request with the stage to each slot; return the stage with its values."""
    spec = next(spec for spec in BUILTIN if spec.name == name)
    text = _FITTING.get(name) or (spec.note.example if spec.note else "")
    found: list[Stage] = [*Chain.parse(text), *((name, params) for params in examples(spec.params))]
    for stage in found:
        try:
            for slot, prompt in enumerate(prompts):
                pipeline.admit(slot, Chain((stage,)), Admission(prompt, max_tokens=1000))
        except ProcessorsError:
            continue
        return stage
    raise ProcessorsError(f"No example of the stage {name} fits the made-up tokenizer.")


def _prompt(row: int, length: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(row)
    ids = torch.randint(_COMMON, (length,), generator=generator)
    if length > 4 * _AGAIN:
        for part in (1, 2):
            start = part * length // 3
            ids[start : start + _AGAIN] = ids[-_AGAIN:]
    return tuple(ids.tolist())


MEASURES = (
    "Measure each stage alone on the logits of one step, in turns with a torch.logsumexp of the same "
    "logits, which is a single pass over them."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(stages, MEASURES, StageCost))
