"""Time of one decode step of the engine without a model: the fake runner's logits cost a lookup."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from gencli.bench.records import StepCost
from gencli.bench.vocabulary import MadeTokenizer
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.fake import FakeRunner
from gencli.runtime.wiring import bare_engine
from processors.catalog import Draw
from processors.chain import Chain

__all__ = ["CHAINS", "VOCABULARY", "idle_model_engine", "measure_steps"]

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
