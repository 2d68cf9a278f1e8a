"""Measure a decode step of the engine without a model.

python scripts/bench/step.py --help
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from random_models import MadeTokenizer
from report import measuring, run_benchmark

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.runtime.wiring import bare_engine
from processors.catalog import Draw
from processors.chain import Chain


@dataclass(frozen=True, slots=True)
class StepCost:
    """A decode step of the engine without a model."""

    rows: int = figure("texts side by side")
    chain: str = figure("name of the chain")
    step_ms: float = figure("milliseconds of a step, the median", 3)
    least_ms: float = figure("milliseconds of the fastest step", 3)


_MOST = 4096
_Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--rows",
        min=1,
        max=_MOST,
        metavar="N",
        help="Texts side by side; 1, 8, 32 and 128 if not given. (repeatable)",
    ),
]
_Steps = Annotated[
    int, typer.Option("--steps", min=1, max=100_000, metavar="N", help="Steps that are timed of each chain.")
]
_Vocabulary = Annotated[
    int, typer.Option("--vocab", min=300, max=_MOST, metavar="N", help="Number of token ids of the model.")
]


def step(
    rows: _Rows = None,
    steps: _Steps = 200,
    vocab: _Vocabulary = 1000,
    threads: Threads = 1,
    form: Form = "text",
) -> int:
    """Measure steps at each number of rows with each chain, and print their times. Return the exit code."""
    with measuring(threads):
        costs = [
            cost
            for count in rows or (1, 8, 32, 128)
            for cost in measure_steps(count, steps, vocab_size=vocab)
        ]
    conditions = {"dtype": "float32", "threads": threads, "steps": steps, "vocab": vocab}
    write_report(costs, form, conditions=conditions)
    return 0


VOCABULARY = 1_000  # ids; so few that the arithmetic over logits is a small part of a step
CHAINS: dict[str, tuple[str, Draw]] = {
    "greedy": ("", "greedy"),
    "default": ("", "gumbel"),
    "temperature, top_p": ("temperature=0.8 | top_p=0.9", "gumbel"),
    "four stages": ("repetition=1.1 | temperature=0.8 | top_k=50 | top_p=0.95", "gumbel"),
}
_TURN = 50  # steps of a turn; the caches are warm after the first few
_PROMPT = 16  # tokens of a prompt
_WARM = 10  # steps that are not timed


def measure_steps(rows: int, num_steps: int, *, vocab_size: int = VOCABULARY) -> Iterator[StepCost]:
    """Yield the cost of each chain of CHAINS. They take turns, so that other load slows all."""
    times: dict[str, list[float]] = {name: [] for name in CHAINS}
    engines = {
        name: idle_model_engine(name, rows, num_steps + _WARM, vocab_size=vocab_size) for name in CHAINS
    }
    for start in range(0, num_steps + _WARM, _TURN):
        for name, engine in engines.items():
            times[name] += [_timed(engine) for _ in range(start, min(start + _TURN, num_steps + _WARM))]
    for name, found in times.items():
        yield StepCost(rows, name, statistics.median(found[_WARM:]), min(found[_WARM:]))


def idle_model_engine(name: str, rows: int, num_steps: int, *, vocab_size: int = VOCABULARY) -> Engine:
    """Return an engine with `rows` texts of chain CHAINS[name] that decode at least `num_steps` steps."""
    # The tokenizer's end-of-text id is beyond the model's ids, so no text ends by it, and no stage masks it.
    tokenizer = MadeTokenizer(vocab_size + 1)
    limits = Limits(max_tokens=num_steps + 2)
    runner = FakeRunner(vocab_size, max_lanes=rows, context=_PROMPT + limits.max_tokens)
    engine = bare_engine(runner, tokenizer, max_batch=rows, step_tokens=rows * _PROMPT)
    chain, draw = CHAINS[name]
    for row in range(rows):
        prompt = tuple((row + 31 * place) % vocab_size for place in range(_PROMPT))
        engine.submit(Request(str(row), prompt, Chain.parse(chain), seed=row, draw=draw, limits=limits))
    engine.step()  # prefill
    return engine


def _timed(engine: Engine) -> float:
    start = time.perf_counter()
    engine.step()
    return (time.perf_counter() - start) * 1e3


MEASURES = (
    "Measure a decode step of the engine without a model: the logits are read from a table. What is left "
    "is the time of the scheduler, the chain, the draw and the texts. Four chains take turns: greedy; "
    "the default, a Gumbel draw; temperature and top-p; and both with a repetition penalty and top-k."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(step, MEASURES, StepCost))
