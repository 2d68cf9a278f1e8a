"""Generate documents for many schemas, and count how they end. No run may exit 0 with an invalid document.

    python scripts/measure_documents.py [--model tiny] [--schemas 300] [--seeds 3] [--minutes 60]

`--model` may be a folder with only a tokenizer: then a small model with random weights is used. The schemas
of tests/data/schemas.jsonl are generated with each back end, rewritten and not, at temperature 1. Cells with
the same grammar share their documents, since the same draws give the same text. After `--minutes`, or an
interrupt, the results so far are printed. Schemas are shuffled, so these are a sample.

valid: exit 0, and the installed jsonschema agrees, except for rounding in divisions of floats. wrong: exit 0,
and jsonschema disagrees. invalid: exit 6, refused by the final check. cut: exit 6, the token limit was
reached in an open document.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from jsonschema import Draft202012Validator, ValidationError  # noqa: E402
from jsonschema.validators import validator_for  # noqa: E402

from gencli.core.events import Error, Finish  # noqa: E402
from gencli.core.request import Limits, Request  # noqa: E402
from gencli.errors import ConfigError, GencliError  # noqa: E402
from gencli.json_text import parse_json  # noqa: E402
from gencli.runtime.compiled_grammars import compile_plan, grammar_env  # noqa: E402
from gencli.runtime.model_loading import Loaded, ModelChoice, load  # noqa: E402
from gencli.runtime.wiring import bare_engine  # noqa: E402
from gencli.structured.backend_choice import choose  # noqa: E402
from gencli.structured.output_spec import OutputSpec, OutputValidator, Plan, PlanRequest  # noqa: E402
from processors.chain import Chain  # noqa: E402
from processors.grammar.grammar_compiler import GrammarCompiler  # noqa: E402
from processors.request_values import Constraint  # noqa: E402
from processors.rng import derive  # noqa: E402
from processors.stages.grammar_stage import GrammarParams  # noqa: E402

CORPUS = ROOT / "tests" / "data" / "schemas.jsonl"
CELLS = [(back_end, rewrite) for back_end in ("auto", "xgrammar", "llguidance") for rewrite in (True, False)]
KINDS = ("valid", "wrong", "invalid", "cut", "error", "refused")
PLACES = 16  # samples at once
TOGETHER = 5  # schemas at once


@dataclass(frozen=True)
class Outcome:
    """How a document ended, and why it is not valid."""

    kind: str
    reason: str = ""


def model(name: str) -> Loaded:
    """Return a model by name; a folder without weights gets random weights."""
    folder = Path(name)
    if not folder.is_dir() or list(folder.glob("*.safetensors")):
        return load(ModelChoice(name=name, max_batch=PLACES))
    with tempfile.TemporaryDirectory() as made:
        _random_model(folder, Path(made))
        return load(ModelChoice(name=made, max_batch=PLACES))


def _random_model(tokenizer: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    known = AutoTokenizer.from_pretrained(tokenizer)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=len(known),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=known.eos_token_id,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    known.save_pretrained(folder)


class Late(Exception):
    """The time is over."""


class Bench:
    """A model and its grammar compiler."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.loaded, self.options = model(options.model), options
        self.compiler = GrammarCompiler(grammar_env(self.loaded), timeout=options.grammar_timeout)
        self.engine = bare_engine(
            self.loaded.runner, self.loaded.tokenizer, max_batch=PLACES, grammars=self.compiler
        )
        self.prompt = tuple(self.loaded.tokenizer.encode("JSON:"))
        self.begin = time.monotonic()
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self.begin > 60 * self.options.minutes

    def compiled(self, schema: Any, back_end: str, rewrite: bool) -> Constraint | Outcome:
        """Return the grammar of a run with these options, or why there is none."""
        try:
            plan = choose(schema, PlanRequest(back_end, rewrite=rewrite))  # type: ignore[arg-type]
            return compile_plan(plan, self.compiler).variant.constraint
        except ConfigError as error:
            return Outcome("refused", "timeout" if " seconds" in error.message else "does not compile")
        except GencliError as error:
            return Outcome("refused", type(error).__name__)

    def draw(self, name: str, schema: Any, constraint: Constraint) -> None:
        """Submit a request for each seed."""
        stage = GrammarParams(
            constraint.text,
            kind=constraint.kind,
            backend=constraint.backend,
            whitespace=constraint.whitespace,
        )
        for seed in range(self.options.seeds):
            key = json.dumps([name, constraint.backend, constraint.text, seed])
            one = Request(
                key,
                self.prompt,
                Chain((("grammar", stage),)),
                seed=derive(seed, name),
                limits=Limits(self.options.max_tokens),
            )
            self.engine.submit(one)


def outcome(event: Finish | Error, schema: Any) -> Outcome:
    """Return the exit code of this end, and whether another validator agrees."""
    if isinstance(event, Error):
        return Outcome("error", event.type)
    structure = OutputSpec("json_schema", Plan((), schema=schema), read=parse_json)
    verdict = OutputValidator(structure)(event).verdict
    if event.document in ("open", "free"):
        return Outcome("cut")
    if verdict is not None and verdict.is_valid:
        reason = fault(event.text, schema)
        return Outcome("wrong", reason) if reason else Outcome("valid")
    return Outcome("invalid", fault(event.text, schema) or "jsonschema finds no fault")


def fault(text: str, schema: Any) -> str:
    """Return the keyword that a document violates, by Python's json and jsonschema."""
    try:
        value = json.loads(text, object_pairs_hook=_unlike)
    except ValueError as error:
        return str(error)
    errors = validator_for(schema, Draft202012Validator)(schema).iter_errors(value)
    return next((str(error.validator) for error in errors if not _is_rounding(error)), "")


def _is_rounding(error: ValidationError) -> bool:
    """Whether the only fault is a rounded division of floats, such as 75.1 / 0.01 = 7509.999..."""
    if error.validator != "multipleOf":
        return False
    return Decimal(repr(error.instance)) % Decimal(repr(error.validator_value)) == 0


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice in one object")
    return dict(pairs)


def drawn(bench: Bench, entries: Iterable[dict[str, Any]]) -> Iterator[tuple[int, Outcome]]:
    """Yield (cell, outcome) for each document of these schemas."""
    schemas = {entry["name"]: entry["schema"] for entry in entries}
    users: dict[tuple[str, str, str], list[int]] = {}
    for name, schema in schemas.items():
        for cell, (back_end, rewrite) in enumerate(CELLS):
            found = bench.compiled(schema, back_end, rewrite)
            if isinstance(found, Outcome):
                yield from ((cell, found) for _ in range(bench.options.seeds))
                continue
            cells = users.setdefault((name, found.backend, found.text), [])
            if not cells:
                bench.draw(name, schema, found)
            cells.append(cell)
    for event in bench.engine.run():
        if bench.is_late():
            raise Late
        if not isinstance(event, Finish | Error):
            continue
        name, *rest, _ = json.loads(event.request)
        end = outcome(event, schemas[name])
        if end.kind not in ("valid", "cut"):
            print(f"{name} {rest[0]} {end.kind}, {end.reason}: {event.text[:160]!r}", file=sys.stderr)
        yield from ((cell, end) for cell in users[name, rest[0], rest[1]])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--grammar-timeout", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    bench, done = Bench(options), 0
    entries = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(entries)
    counts: Counter[tuple[int, Outcome]] = Counter()
    with suppress(Late, KeyboardInterrupt):
        while done < min(options.schemas, len(entries)):
            some = entries[done : min(done + TOGETHER, options.schemas)]
            counts.update(list(drawn(bench, some)))
            done += len(some)
            print(f"{done} schemas, {time.monotonic() - bench.begin:.0f} s", file=sys.stderr, flush=True)
    bench.compiler.close()
    show(counts, done, options)


def show(counts: Counter[tuple[int, Outcome]], done: int, options: argparse.Namespace) -> None:
    """Print the table, and the reasons of invalid documents."""
    print(f"{options.model}, {done} schemas x {options.seeds} seeds, {options.max_tokens} tokens")
    print(f"| back end | rewritten | {' | '.join(KINDS)} |\n|---|---|{'---|' * len(KINDS)}")
    for cell, (back_end, rewrite) in enumerate(CELLS):
        kinds = Counter[str]()
        for (where, end), count in counts.items():
            kinds[end.kind] += count * (where == cell)
        figures = " | ".join(str(kinds[kind]) for kind in KINDS)
        print(f"| {back_end} | {'yes' if rewrite else 'no'} | {figures} |")
    for cell, (back_end, rewrite) in enumerate(CELLS):
        reasons = {
            f"{end.kind}, {end.reason}": count
            for (where, end), count in counts.most_common()
            if where == cell and end.reason
        }
        told = "; ".join(f"{what}: {count}" for what, count in reasons.items())
        print(f"{back_end}, {'rewritten' if rewrite else 'not rewritten'}: {told or 'nothing else'}")


if __name__ == "__main__":
    main()
