"""Count constrained outputs that --max-tokens cuts, with and without completion near the limit.

    python scripts/measure_budget.py [--schemas 300] [--tokens 64 256] [--models random tiny]
        [--back-end auto] [--as-given]

The schemas are those of tests/data/schemas.jsonl, rewritten; temperature is 1. `random` is a table of random
logits over the vocabulary of tiny. Printed are, for each model: documents that ended in time, cut documents
whose schema has a shorter one (the shortest end that gencli finds), cut documents whose schema has none,
errors, and documents that ended but are not valid.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import torch

from gencli.core.events import Error, Event, Finish
from gencli.core.request import Limits, Request
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import bare_engine
from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import PlanRequest
from processors.chain import Chain
from processors.errors import GrammarError
from processors.grammar.closing import Closer, Position
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext
from processors.grammar.grammar_backend import load_backend, mask_of, words
from processors.grammar.short_texts import SearchBudget
from processors.request_values import Constraint
from processors.stages.grammar_stage import GrammarParams

CORPUS = Path(__file__).parent.parent / "tests" / "data" / "schemas.jsonl"
NAMES = ("xgrammar", "llguidance")


@dataclass(frozen=True)
class Case:
    """A schema, its grammar parameters, and the tokens of a short document."""

    schema: Any
    constraint: Constraint
    shortest: int


class Measure:
    """A model, and the schemas that its back end compiles."""

    def __init__(self, model: str, count: int, backend: str, rewrite: bool) -> None:
        loaded = load(ModelChoice(name="tiny", dtype="float32", max_batch=16))
        width = loaded.runner.spec.vocab_size
        self.runner: Any = FakeRunner(width) if model == "random" else loaded.runner
        self.tokenizer = loaded.tokenizer
        self.engine = bare_engine(self.runner, self.tokenizer, max_batch=16)
        self.backends = {name: load_backend(name, self.engine.pipeline.env) for name in NAMES}
        self.canonical, self.size = CanonicalTokenizer(self.tokenizer), words(width)
        self.cases: list[Case] = []
        for line in CORPUS.read_text(encoding="utf-8").splitlines():
            schema = json.loads(line)["schema"]
            plan = choose(schema, PlanRequest(backend, rewrite=rewrite))  # type: ignore[arg-type]
            constraint = plan.variants[0].constraint
            if len(self.cases) < count and (shortest := self._shortest(constraint)) is not None:
                self.cases.append(Case(schema, constraint, shortest))

    def _shortest(self, constraint: Constraint) -> int | None:
        """Return the tokens of a short document; None if the back end refuses the schema."""
        backend = self.backends[constraint.backend]
        try:
            grammar = backend.compile(constraint)
        except GrammarError:
            return None
        closer = Closer(self.canonical, lambda matcher: mask_of(backend, matcher, self.size)[0])
        position = Position(grammar.matcher(), b"", JsonContext(), closer.canonical)
        path = closer.find(position, 4096, SearchBudget(20_000))
        return 4097 if path is None else len(path)

    def run(self, tokens: int, in_budget: bool) -> Counter[str]:
        """Return the outcomes of all schemas."""
        prompt = tuple(self.tokenizer.encode("A record:\n"))
        for number, case in enumerate(self.cases):
            constraint = case.constraint
            params = GrammarParams(
                constraint.text,
                backend=constraint.backend,
                whitespace=constraint.whitespace,
                in_budget=in_budget,
            )
            limits, chain = Limits(tokens), Chain((("grammar", params),))
            self.engine.submit(Request(str(number), prompt, chain, seed=number, limits=limits))
        return Counter(filter(None, (self._outcome(event, tokens) for event in self.engine.run())))

    def _outcome(self, event: Event, tokens: int) -> str:
        if isinstance(event, Error):
            return "error"
        if not isinstance(event, Finish):
            return ""
        case = self.cases[int(event.request)]
        if event.document not in ("complete", "over"):
            return "cut" if case.shortest <= tokens else "no room"
        try:
            jsonschema.validate(json.loads(event.text), case.schema)
        except (ValueError, jsonschema.ValidationError):
            return "not valid"
        return "ended"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="documents cut by the limit of tokens")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--models", nargs="+", default=["random", "tiny"])
    parser.add_argument("--back-end", default="auto", choices=("auto", *NAMES))
    parser.add_argument("--as-given", action="store_true", help="do not rewrite the schemas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = ("ended", "cut", "no room", "error", "not valid")
    print("model   tokens  in budget  " + "  ".join(f"{kind:>9}" for kind in kinds))
    for model in options.models:
        measure = Measure(model, options.schemas, options.back_end, not options.as_given)
        for tokens, in_budget in product(options.tokens, (False, True)):
            found = measure.run(tokens, in_budget)
            figures = "  ".join(f"{found[kind]:9}" for kind in kinds)
            print(f"{model:7} {tokens:6}  {in_budget!s:9}  {figures}", flush=True)


if __name__ == "__main__":
    main()
