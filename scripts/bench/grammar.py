"""Measure a step with a JSON schema against one without.

python scripts/bench/grammar.py --help
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer
from random_models import VOCABULARY, MadeTokenizer
from report import measuring, run_benchmark

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.core.events import Token
from gencli.core.request import Limits, Request
from gencli.models.hf_runner import HFRunner
from gencli.runtime.wiring import bare_engine
from processors.base import Env
from processors.chain import Chain
from processors.grammar.grammar_backend import load_backend
from processors.pipeline import Pipeline
from processors.request_values import Constraint
from processors.rows import Rows
from processors.stages.grammar_stage import GrammarParams


@dataclass(frozen=True, slots=True)
class GrammarCost:
    """Steps with a JSON schema and steps without one in turns, medians over the steps of all rows."""

    backend: str = figure("grammar back end")
    rows: int = figure("texts side by side")
    compile_ms: float = figure("milliseconds to compile the schema, once", 3)
    fill_ms: float = figure("milliseconds a step to fill the masks of allowed tokens", 3)
    apply_ms: float = figure("milliseconds a step to apply the masks to the logits", 3)
    step_ms: float = figure("milliseconds of a step with the schema", 3)
    free_step_ms: float = figure("milliseconds of a step without it", 3)
    ratio: float = figure("step_ms / free_step_ms of neighbouring steps", 3)


_MOST = 1_000_000
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
        help="Texts side by side; 1 and 16 if not given. (repeatable)",
    ),
]
_Steps = Annotated[int, typer.Option("--steps", min=1, max=_MOST, metavar="N", help="Steps that are timed.")]


def grammar(
    backend: _Backends = None,
    rows: _Rows = None,
    steps: _Steps = 200,
    threads: Threads = 1,
    form: Form = "text",
) -> int:
    """Measure each back end with each number of rows and print the costs. Return the exit code."""
    with measuring(threads):
        from random_models import random_llama

        model = random_llama()
        costs = [
            measure(model, name, count, steps)
            for name in backend or ("xgrammar", "llguidance")
            for count in rows or (1, 16)
        ]
    write_report(costs, form, conditions={"dtype": "float32", "threads": threads, "steps": steps})
    return 0


_WARM = 10  # steps that are not measured
# Long enough not to end during the measurement.
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 20,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "price": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "size": {"enum": ["small", "medium", "large"]},
        },
        "required": ["name", "price", "tags", "size"],
        "additionalProperties": False,
    },
}


@torch.inference_mode()
def measure(model: Any, backend: str, rows: int, num_steps: int) -> GrammarCost:
    """Measure a back end. Two engines on one model alternate step by step, so that other load slows both."""
    tokenizer = MadeTokenizer(VOCABULARY)
    params = GrammarParams.from_mapping({"text": json.dumps(SCHEMA), "backend": backend}, stage="grammar")
    free, _ = _steps(model, tokenizer, rows, Chain.parse("ignore_eos=true"))
    bound, clock = _steps(model, tokenizer, rows, Chain((("grammar", params),)))
    times = [(_timed(free), _timed(bound), clock.take()) for _ in range(num_steps + _WARM)][_WARM:]
    return GrammarCost(
        backend=backend,
        rows=rows,
        compile_ms=_compile_time(tokenizer, backend),
        fill_ms=statistics.median(parts["prepare"] for *_, parts in times),
        apply_ms=statistics.median(parts["apply"] for *_, parts in times),
        step_ms=statistics.median(step for _, step, _ in times),
        free_step_ms=statistics.median(step for step, *_ in times),
        ratio=statistics.median(step / other for other, step, _ in times),
    )


class _Clock:
    """Milliseconds that the stage spent in each method since the last `take`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._spent: dict[str, float] = {}
        stage: Any = pipeline.stage("grammar")
        for name in ("prepare", "apply"):
            setattr(stage, name, self._watched(name, getattr(stage, name)))

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Rows | torch.Tensor) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self._spent[name] = self._spent.get(name, 0.0) + (time.perf_counter() - start) * 1e3

        return watched

    def take(self) -> dict[str, float]:
        """Return the times, and reset them."""
        spent, self._spent = {"prepare": 0.0, "apply": 0.0, **self._spent}, {}
        return spent


def _steps(model: Any, tokenizer: MadeTokenizer, rows: int, chain: Chain) -> tuple[Iterator[None], _Clock]:
    """Return an iterator that runs one decode step of all rows without drafts, and the stage's clock."""
    engine = bare_engine(HFRunner(model, max_lanes=rows), tokenizer, max_batch=rows)
    prompt = tuple(tokenizer.encode("A list of things to sell: "))
    for row in range(rows):
        engine.submit(Request(str(row), prompt, chain, seed=row, limits=Limits(4000), jump="off"))

    def steps() -> Iterator[None]:
        events = (event for event in engine.run() if isinstance(event, Token))
        while True:
            for _ in range(rows):
                next(events)
            yield

    return steps(), _Clock(engine.pipeline)


def _timed(steps: Iterator[None]) -> float:
    start = time.perf_counter()
    next(steps)
    return (time.perf_counter() - start) * 1e3


def _compile_time(tokenizer: MadeTokenizer, backend: str) -> float:
    loaded = load_backend(backend, Env(VOCABULARY, tokenizer, tokenizer.eos_ids))
    times = []
    for count in range(3):  # different grammars, so that no cache hits
        text = json.dumps({**SCHEMA, "minItems": SCHEMA["minItems"] + count})
        start = time.perf_counter()
        loaded.compile(Constraint("json_schema", text, backend))
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


MEASURES = (
    "Measure a step with a JSON schema against a step without one, on a random model with 15M parameters "
    "and 32,000 token ids. Both kinds of step take turns."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(grammar, MEASURES, GrammarCost))
