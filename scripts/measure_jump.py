"""Forward passes that jump-forward saves on JSON with fixed keys, and whether the tokens stay the same.

    python scripts/measure_jump.py [--schemas 50] [--model tiny] [--back-ends xgrammar llguidance]

Every schema is run with and without jump-forward, greedy and at temperature 1, with white space and
without it, with forced text in the tokenizer's tokens (canonical) or in any. Printed are sums over the
schemas: forward passes without and with it, their ratio, the drafts that were accepted, and how many
outputs had the same tokens in both runs.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from gencli.engine import Engine
from gencli.events import Event, Token
from gencli.models.resolve import Loaded, ModelChoice, load
from gencli.plan import StepPlan
from gencli.request import Jump, Limits, Request
from processors.catalog import GrammarParams
from processors.chain import Chain

KEYS = ("name", "age", "city", "title", "price", "tags", "address", "birth_date", "is_active", "comment")


def value_schema(draw: random.Random, depth: int) -> dict[str, Any]:
    """One of the kinds of value that records are made of."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 16},
        {"type": "integer", "minimum": 0, "maximum": 120},
        {"type": "boolean"},
        {"enum": ["small", "medium", "large"]},
        {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
    ]
    return record_schema(draw, depth - 1) if depth and draw.random() < 0.2 else draw.choice(kinds)


def record_schema(draw: random.Random, depth: int = 1) -> dict[str, Any]:
    """An object with three to six fixed keys."""
    keys = draw.sample(KEYS, draw.randint(3, 6))
    properties = {key: value_schema(draw, depth) for key in keys}
    return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}


class Counting:
    """A runner that counts its passes and the tokens that were asked for."""

    def __init__(self, runner: Any) -> None:
        self._runner, self.passes, self.rows = runner, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, plan: StepPlan) -> torch.Tensor:
        """One pass."""
        self.passes += 1
        self.rows += plan.num_rows
        logits: torch.Tensor = self._runner.forward(plan)
        return logits


@dataclass(frozen=True)
class Outcome:
    """The passes of one run, its rows, its tokens."""

    passes: int
    rows: int
    ids: tuple[int, ...]


class Bench:
    """An engine on a model, for one prompt at a time."""

    def __init__(self, loaded: Loaded) -> None:
        self._runner = Counting(loaded.runner)
        self._engine = Engine(self._runner, loaded.tokenizer, max_batch=1)
        self._prompt = tuple(loaded.tokenizer.encode("A record:\n"))

    def run(self, chain: Chain, seed: int, jump: Jump) -> Outcome:
        """One output."""
        self._runner.passes = self._runner.rows = 0
        request = Request("1", self._prompt, chain, seed=seed, limits=Limits(256), jump=jump)
        self._engine.submit(request)
        events: list[Event] = list(self._engine.run())
        ids = tuple(i for event in events if isinstance(event, Token) for i in event.ids)
        return Outcome(self._runner.passes, self._runner.rows, ids)


def measure(bench: Bench, schemas: list[str], params: dict[str, Any], temperature: float) -> str:
    """One line of the table."""
    plain: list[Outcome] = []
    jumped: list[Outcome] = []
    for seed, text in enumerate(schemas):
        grammar = GrammarParams(text, **params)
        chain = Chain((("grammar", grammar), *Chain.parse(f"temperature={temperature}").stages))
        plain.append(bench.run(chain, seed, "off"))
        jumped.append(bench.run(chain, seed, "auto"))
    before, after = sum(one.passes for one in plain), sum(one.passes for one in jumped)
    proposed = sum(one.rows - one.passes for one in jumped)
    accepted = sum(len(one.ids) - one.passes for one in jumped)
    same = sum(one.ids == other.ids for one, other in zip(plain, jumped, strict=True))
    ratio, share = before / after, accepted / max(proposed, 1)
    return f"{before:7} {after:7} {ratio:6.2f} {share:9.0%} {same:6} of {len(schemas)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="forward passes with and without jump-forward")
    parser.add_argument("--schemas", type=int, default=50)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--back-ends", nargs="+", default=["xgrammar", "llguidance"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load(ModelChoice(name=options.model, dtype="float32"))
    bench = Bench(loaded)
    schemas = [json.dumps(record_schema(random.Random(seed))) for seed in range(options.schemas)]
    print("back end    space  canonical  temperature   plain   jump  ratio  accepted   same tokens")
    for backend, space, canonical, temperature in product(options.back_ends, (8, 0), (True, False), (0, 1)):
        params = {"backend": backend, "whitespace": space, "canonical": canonical}
        line = measure(bench, schemas, params, temperature)
        print(f"{backend:11} {space:5}  {canonical!s:9}  {temperature:11} {line}", flush=True)


if __name__ == "__main__":
    main()
