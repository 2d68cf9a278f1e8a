"""Forward passes that jump-forward saves on JSON with fixed keys, and whether the tokens stay the same.

    python scripts/measure_jump.py [--schemas 50] [--model tiny] [--back-ends xgrammar llguidance]
        [--space 8 0] [--canonical 1 0] [--timed] [--rows 8] [--max-tokens 256]

Each schema runs with and without jump-forward, greedy and at temperature 1, with and without white space, and
with forced text in canonical tokens or in any. Printed are sums over the schemas: forward passes without and
with jump-forward, their ratio, accepted draft tokens, and the number of outputs with the same tokens in both
runs. Draft tokens count as free; --timed measures their cost, so fewer are proposed, and prints the CPU
seconds without jump-forward over those with it.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from gencli.core.events import Token
from gencli.core.request import Jump, Limits, Request, StepPlan
from gencli.runtime.model_loading import Loaded, ModelChoice, load
from gencli.runtime.wiring import bare_engine
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams

KEYS = ("name", "age", "city", "title", "price", "tags", "address", "birth_date", "is_active", "comment")


def value_schema(draw: random.Random, depth: int) -> dict[str, Any]:
    """Return a random schema of a record's value."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 16},
        {"type": "integer", "minimum": 0, "maximum": 120},
        {"type": "boolean"},
        {"enum": ["small", "medium", "large"]},
        {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
    ]
    return record_schema(draw, depth - 1) if depth and draw.random() < 0.2 else draw.choice(kinds)


def record_schema(draw: random.Random, depth: int = 1) -> dict[str, Any]:
    """Return an object with three to six fixed keys."""
    keys = draw.sample(KEYS, draw.randint(3, 6))
    properties = {key: value_schema(draw, depth) for key in keys}
    return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}


class Counting:
    """A runner that counts the draft tokens in its steps."""

    def __init__(self, runner: Any) -> None:
        self._runner, self.drafts = runner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, plan: StepPlan) -> torch.Tensor:
        """Run one forward pass."""
        self.drafts += sum(len(feed.drafts) for feed in plan.feeds)
        logits: torch.Tensor = self._runner.forward(plan)
        return logits


@dataclass(slots=True)
class Outcome:
    """The tokens of each output, its forward passes, and the draft tokens and seconds of all outputs."""

    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    passes: int = 0
    drafts: int = 0
    seconds: float = 0.0


class Bench:
    """Engines on a model. The forward passes of an output are the same alone and in a batch.

    Unless `timed`, the clock stands still, so that the counts do not depend on the machine.
    """

    def __init__(self, loaded: Loaded, *, rows: int, most: int, timed: bool) -> None:
        self._runner, self._most, self.is_timed = Counting(loaded.runner), most, timed
        clock = time.thread_time if timed else lambda: 0.0
        self._engine = bare_engine(self._runner, loaded.tokenizer, max_batch=rows, clock=clock)
        self._prompt = tuple(loaded.tokenizer.encode("A record:\n"))

    def run(self, chains: Sequence[Chain], jump: Jump) -> Outcome:
        """Return one outcome per chain; a sample has one event for each of its steps."""
        for seed, chain in enumerate(chains):
            request = Request(str(seed), self._prompt, chain, seed=seed, limits=Limits(self._most), jump=jump)
            self._engine.submit(request)
        self._runner.drafts, outcome, begin = 0, Outcome(), time.thread_time()
        for event in self._engine.run():
            if isinstance(event, Token):
                outcome.ids[event.request] = (*outcome.ids.get(event.request, ()), *event.ids)
                outcome.passes += 1
        outcome.drafts, outcome.seconds = self._runner.drafts, time.thread_time() - begin
        return outcome


def measure(bench: Bench, schemas: list[str], params: dict[str, Any], temperature: float) -> str:
    """Return one line of the table."""
    last = Chain.parse(f"temperature={temperature}").stages
    chains = [Chain((("grammar", GrammarParams(text, **params)), *last)) for text in schemas]
    plain, jumped = bench.run(chains, "off"), bench.run(chains, "auto")
    accepted = sum(map(len, jumped.ids.values())) - jumped.passes
    share = accepted / max(jumped.drafts, 1)
    same = sum(plain.ids[key] == ids for key, ids in jumped.ids.items())
    ratio = plain.passes / jumped.passes
    line = f"{plain.passes:7} {jumped.passes:7} {ratio:6.2f} {share:9.0%} {same:6} of {len(schemas)}"
    return f"{line}  {plain.seconds / jumped.seconds:7.2f}" if bench.is_timed else line


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="forward passes with and without jump-forward")
    parser.add_argument("--schemas", type=int, default=50)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--back-ends", nargs="+", default=["xgrammar", "llguidance"])
    parser.add_argument("--space", type=int, nargs="+", default=[8, 0])
    parser.add_argument("--canonical", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load(ModelChoice(name=options.model, dtype="float32"))
    bench = Bench(loaded, rows=options.rows, most=options.max_tokens, timed=options.timed)
    schemas = [json.dumps(record_schema(random.Random(seed))) for seed in range(options.schemas)]
    print("back end    space  canonical  temperature   plain   jump  ratio  accepted   same tokens   faster")
    for backend, space, canonical, temperature in product(
        options.back_ends, options.space, options.canonical, (0, 1)
    ):
        params = {"backend": backend, "whitespace": space, "canonical": bool(canonical)}
        line = measure(bench, schemas, params, temperature)
        print(f"{backend:11} {space:5}  {canonical:9}  {temperature:11} {line}", flush=True)


if __name__ == "__main__":
    main()
