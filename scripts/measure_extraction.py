"""Extraction by the bundled model: held-out sentences to records, with and without the schema as a grammar.

    python scripts/measure_extraction.py [--sentences 200]

Greedy. A record is right if its JSON equals the expected value; text that is not JSON is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tiny_corpus import record_pairs  # noqa: E402

from gencli.core.events import Finish  # noqa: E402
from gencli.core.request import Request  # noqa: E402
from gencli.engine.engine import Engine  # noqa: E402
from gencli.errors import GencliError  # noqa: E402
from gencli.json_text import parse_json  # noqa: E402
from gencli.runtime.compiled_grammars import compile_plan, grammar_env  # noqa: E402
from gencli.runtime.model_loading import Loaded, ModelChoice, load  # noqa: E402
from gencli.runtime.wiring import bare_engine  # noqa: E402
from gencli.structured.backend_choice import choose  # noqa: E402
from processors.chain import Chain  # noqa: E402
from processors.grammar.grammar_compiler import GrammarCompiler  # noqa: E402
from processors.stages.grammar_stage import GrammarParams  # noqa: E402

TYPES = {int: "integer", str: "string"}


def schema_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the records of one kind."""
    fields = {key: {"type": TYPES[type(value)]} for key, value in record.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


def is_right(text: str, wanted: Any) -> bool:
    """Whether the text is the expected value."""
    try:
        return bool(parse_json(text) == wanted)
    except GencliError:
        return False


def extract(engine: Engine, requests: Sequence[Request]) -> dict[str, str]:
    """Return the texts by request id."""
    for one in requests:
        engine.submit(one)
    return {event.request: event.text for event in engine.run() if isinstance(event, Finish)}


def scores(loaded: Loaded, count: int) -> Iterator[tuple[str, int]]:
    """Yield the number of right records among `count`, with the schema and without."""
    compiler = GrammarCompiler(grammar_env(loaded))
    engine = bare_engine(loaded.runner, loaded.tokenizer, max_batch=16, grammars=compiler)
    pairs = record_pairs(count, "held-out")
    wanted = {str(i): json.loads(answer) for i, (_, answer) in enumerate(pairs)}
    for label in ("with the schema", "without"):
        requests = []
        for i, (prompt, _) in enumerate(pairs):
            chain = Chain()
            if label != "without":
                found = compile_plan(choose(schema_of(wanted[str(i)])), compiler).variant.constraint
                chain = Chain((("grammar", GrammarParams(found.text, found.kind, found.backend)),))
            ids = tuple(loaded.tokenizer.encode(prompt))
            requests.append(Request(str(i), ids, chain, draw="greedy"))
        texts = extract(engine, requests)
        yield label, sum(is_right(texts[key], value) for key, value in wanted.items())
    compiler.close()


def main() -> None:
    """Print both shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=200)
    count = parser.parse_args().sentences
    for label, right in scores(load(ModelChoice(name="tiny", max_batch=16)), count):
        print(f"{label}: {right} of {count} exactly right ({100 * right / count:.1f} %)")


if __name__ == "__main__":
    main()
