"""Cost of a grammar: compiling, filling and applying masks, and a whole step with and without it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gencli.bench.llama import VOCABULARY
from gencli.bench.records import GrammarCost
from gencli.bench.vocabulary import MadeTokenizer
from gencli.core.events import Token
from gencli.core.request import Limits, Request
from gencli.models.hf import HFRunner
from gencli.runtime.wiring import bare_engine
from processors.base import Env
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.constraint import Constraint
from processors.grammar.backends.base import load_backend
from processors.pipeline import Pipeline
from processors.rows import Rows

__all__ = ["SCHEMA", "measure"]

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
