"""Draw documents for many schemas, and count how they end: nothing that ends well may be invalid.

    python scripts/measure_documents.py [--model tiny] [--backend auto] [--as-it-stands] [--schemas 300]

`--model` may also be a folder with a tokenizer alone: a small model with random weights is put behind it.
Each schema of tests/data/schemas.jsonl is drawn with each seed. valid: parsed strictly and valid for the
schema as it was given; invalid: it ended by itself and is not; cut: the tokens ran out in an open document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gencli.engine import Engine  # noqa: E402
from gencli.errors import GencliError  # noqa: E402
from gencli.events import Error, Finish  # noqa: E402
from gencli.models.resolve import Loaded, ModelChoice, load  # noqa: E402
from gencli.request import Limits, Request  # noqa: E402
from gencli.structured.audit.choose import choose  # noqa: E402
from gencli.structured.compiling import compile_plan, grammar_env  # noqa: E402
from gencli.structured.schema.document import parse  # noqa: E402
from gencli.structured.schema.validate import Validator  # noqa: E402
from processors.catalog import GrammarParams  # noqa: E402
from processors.chain import Chain  # noqa: E402
from processors.grammar.compiler import GrammarCompiler  # noqa: E402
from processors.rng import derive  # noqa: E402

CORPUS = ROOT / "tests" / "data" / "schemas.jsonl"


@dataclass(frozen=True)
class Case:
    """A schema that compiled, with what its documents are checked by."""

    name: str
    stage: GrammarParams
    validator: Validator


def model(name: str) -> Loaded:
    """A model by name; a folder without weights gets random ones."""
    folder = Path(name)
    if not folder.is_dir() or list(folder.glob("*.safetensors")):
        return load(ModelChoice(name=name, max_batch=16))
    with tempfile.TemporaryDirectory() as made:
        _random_model(folder, Path(made))
        return load(ModelChoice(name=made, max_batch=16))


def _random_model(tokenizer: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    known = AutoTokenizer.from_pretrained(tokenizer)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=len(known),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=known.eos_token_id,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    known.save_pretrained(folder)


def cases(options: argparse.Namespace, compiler: GrammarCompiler, counts: Counter[str]) -> Iterator[Case]:
    """The schemas that compile; the others are counted by their error."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    for line in lines[:: max(1, len(lines) // options.schemas)][: options.schemas]:
        entry: dict[str, Any] = json.loads(line)
        try:
            plan = choose(entry["schema"], options.backend, rewrite=not options.as_it_stands)
            found = compile_plan(plan, compiler).variant.constraint
        except GencliError as error:
            counts[f"refused ({type(error).__name__})"] += options.seeds
            continue
        stage = GrammarParams(found.text, kind=found.kind, backend=found.backend, whitespace=found.whitespace)
        yield Case(entry["name"], stage, Validator(entry["schema"], False))


def verdict(case: Case, event: Finish | Error) -> str:
    """How a document ended."""
    if isinstance(event, Error):
        return f"error ({event.type})"
    if event.document in ("open", "free"):
        return f"cut ({event.reason})"
    try:
        faults = case.validator.faults(parse(event.text))
    except GencliError as error:
        faults = (error.message,)
    if faults:
        print(f"  {case.name}: {faults[0]}: {event.text[:200]!r}")
    return "invalid" if faults else "valid"


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--backend", default="auto", choices=("auto", "xgrammar", "llguidance"))
    parser.add_argument("--as-it-stands", action="store_true", help="do not rewrite the schemas")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()
    loaded, counts = model(options.model), Counter[str]()
    compiler = GrammarCompiler(grammar_env(loaded))
    engine = Engine(loaded.runner, loaded.tokenizer, max_batch=16, grammars=compiler)
    prompt = tuple(loaded.tokenizer.encode("JSON:"))
    known = {}
    for case in cases(options, compiler, counts):
        known[case.name] = case
        chain = Chain((("grammar", case.stage),))
        for seed in range(options.seeds):
            limits = Limits(options.max_tokens)
            one = Request(f"{case.name}#{seed}", prompt, chain, seed=derive(seed, case.name), limits=limits)
            try:
                engine.submit(one)
            except GencliError as error:
                counts[f"refused ({type(error).__name__})"] += 1
    for event in engine.run():
        if isinstance(event, Finish | Error):
            counts[verdict(known[event.request.rpartition("#")[0]], event)] += 1
    compiler.close()
    total = sum(counts.values())
    for what, count in sorted(counts.items()):
        print(f"{what:30} {count:5} {100 * count / total:5.1f} %")
    print(f"{'documents':30} {total:5}")


if __name__ == "__main__":
    main()
