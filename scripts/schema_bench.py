"""Generate one document for each schema of a folder, and count how they end.

    python scripts/schema_bench.py FOLDER --out results.jsonl [--sample 400] [--max-tokens 400] [--table]

The folder has a folder of schemas for each set, as data/ of github.com/guidance-ai/jsonschemabench. From each
set the sample takes a part of its size, spread evenly over its schemas by bytes, the same at each run.
`--out` gets one JSON line a schema. Schemas that have a line are skipped, so a run can be continued; `--only
PART` takes the schemas whose name contains PART, `--table` only prints the table.

valid: exit 0 of `gencli run`, and the installed jsonschema agrees. wrong: exit 0, and jsonschema disagrees.
refused: exit 3 before generating. cut: the limit of tokens ended an open document; `shortest` is then the
length of a short document, if one is found. invalid: the final check refuses it. error: anything else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from jsonschema import Draft202012Validator  # noqa: E402
from jsonschema.validators import validator_for  # noqa: E402
from jsonschema_specifications import REGISTRY  # noqa: E402

from gencli.core.events import Error, Finish  # noqa: E402
from gencli.core.request import Limits, Request  # noqa: E402
from gencli.errors import GencliError  # noqa: E402
from gencli.runtime.compiled_grammars import compile_plan, grammar_env  # noqa: E402
from gencli.runtime.model_loading import ModelChoice, load  # noqa: E402
from gencli.runtime.wiring import bare_engine  # noqa: E402
from gencli.structured.output_spec import OutputValidator, PlanRequest  # noqa: E402
from gencli.structured.planning import plan_output  # noqa: E402
from gencli.structured.schema_errors import Deadline  # noqa: E402
from processors.chain import Chain  # noqa: E402
from processors.grammar.closing import Closer, Position  # noqa: E402
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext  # noqa: E402
from processors.grammar.grammar_backend import mask_of, words  # noqa: E402
from processors.grammar.grammar_compiler import GrammarCompiler  # noqa: E402
from processors.grammar.short_texts import SearchBudget, guide_of  # noqa: E402
from processors.request_values import Constraint  # noqa: E402
from processors.rng import derive  # noqa: E402
from processors.stages.grammar_stage import GrammarParams  # noqa: E402
from processors.stages.scale import TemperatureParams  # noqa: E402

OUTCOMES = ("valid", "refused", "cut", "invalid", "wrong", "error")
Line = dict[str, Any]


def sample(folder: Path, count: int) -> list[Path]:
    """Return `count` schemas: from each set a part of its size, spread evenly over its schemas by bytes."""
    sets = {one: sorted(one.rglob("*.json"), key=lambda path: (path.stat().st_size, path.name))
            for one in sorted(folder.iterdir()) if one.is_dir()}  # fmt: skip
    total = sum(map(len, sets.values()))
    taken, passed = list[Path](), 0
    for paths in sets.values():
        first, passed = passed, passed + len(paths)
        part = passed * count // total - first * count // total
        taken += [paths[(2 * index + 1) * len(paths) // (2 * part)] for index in range(part)]
    return taken


class Bench:
    """A model and its grammar compiler."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.loaded = load(ModelChoice(name=options.model, dtype="float32", max_batch=1))
        self.compiler = GrammarCompiler(grammar_env(self.loaded), timeout=options.grammar_timeout)
        self.engine = bare_engine(
            self.loaded.runner, self.loaded.tokenizer, max_batch=1, grammars=self.compiler
        )
        self.prompt = tuple(self.loaded.tokenizer.encode("JSON:"))

    def run(self, name: str, path: Path) -> Line:
        """Return the line of one schema."""
        begin, line = time.monotonic(), Line(name=name, bytes=path.stat().st_size)
        try:
            deadline = Deadline.after(self.options.grammar_timeout)
            spec = plan_output("json_schema", str(path), PlanRequest(deadline=deadline))
            planned = time.monotonic()
            constraint = compile_plan(spec.plan, self.compiler).variant.constraint
        except GencliError as error:
            seconds = round(time.monotonic() - begin, 2)
            return line | {"outcome": "refused", "reason": error.message, "seconds": seconds}
        line |= {
            "backend": constraint.backend,
            "plan": round(planned - begin, 2),
            "compile": round(time.monotonic() - planned, 2),
        }
        begin, event = time.monotonic(), self._generated(name, constraint)
        line |= {"generate": round(time.monotonic() - begin, 2)}
        if isinstance(event, Error):
            return line | {"outcome": "error", "reason": event.message}
        line |= {"tokens": event.completion_tokens}
        if event.document == "open":
            return line | {"outcome": "cut", "shortest": self._shortest(constraint), "end": event.text[-80:]}
        verdict = OutputValidator(spec)(event).verdict
        if verdict is None or not verdict.is_valid:
            return line | {"outcome": "invalid", "reason": "; ".join(verdict.faults if verdict else ())}
        fault = self._fault(json.loads(event.text), spec.plan.schema)
        return line | ({"outcome": "wrong", "reason": fault} if fault else {"outcome": "valid"})

    def _generated(self, name: str, constraint: Constraint) -> Finish | Error:
        stage = GrammarParams(constraint.text, backend=constraint.backend, whitespace=constraint.whitespace)
        chain = Chain((("grammar", stage), ("temperature", TemperatureParams(self.options.temperature))))
        limits = Limits(self.options.max_tokens)
        self.engine.submit(Request(name, self.prompt, chain, seed=derive(0, name), limits=limits))
        return next(event for event in list(self.engine.run()) if isinstance(event, Finish | Error))

    def _shortest(self, constraint: Constraint) -> int | None:
        """Return the tokens of a short document; None if none is found."""
        backend, size = self.compiler.backend(constraint.backend), words(self.compiler.env.vocab_size)
        closer = Closer(
            CanonicalTokenizer(self.loaded.tokenizer), lambda matcher: mask_of(backend, matcher, size)[0]
        )
        matcher = self.compiler.compile(constraint).matcher()
        spot = Position(matcher, b"", JsonContext(), closer.canonical, guide_of(constraint))
        path = closer.find(spot, 100_000, SearchBudget(10_000_000))
        return None if path is None else len(path)

    @staticmethod
    def _fault(value: Any, schema: Any) -> str:
        """Return what jsonschema finds wrong."""
        checker = validator_for(schema, Draft202012Validator)(schema, registry=REGISTRY)
        return next((f"{error.json_path}: {error.message[:200]}" for error in checker.iter_errors(value)), "")


def table(lines: list[Line]) -> Iterator[str]:
    """Yield the table of outcomes by set, and a line for each schema that did not end valid."""
    yield f"| set | schemas | {' | '.join(OUTCOMES)} |"
    yield f"|---|---|{'---|' * len(OUTCOMES)}"
    sets = sorted({line["name"].split("/")[0] for line in lines})
    for name in (*sets, ""):
        counts = Counter(line["outcome"] for line in lines if line["name"].startswith(name))
        figures = " | ".join(str(counts[kind]) for kind in OUTCOMES)
        yield f"| {name or 'all'} | {counts.total()} | {figures} |"
    for line in sorted(lines, key=lambda line: (line["outcome"], line["name"])):
        if line["outcome"] == "cut":
            yield f"{line['name']}: cut, {line['tokens']} tokens, a short document has {line['shortest']}"
        elif line["outcome"] != "valid":
            yield f"{line['name']}: {line['outcome']}: {' '.join(line['reason'].split())[:200]}"


def main() -> None:
    """Run the bench and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--sample", type=int, default=400)
    parser.add_argument("--only", default="")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=1.2)
    parser.add_argument("--grammar-timeout", type=float, default=30.0)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = (
        [json.loads(text) for text in options.out.read_text().splitlines()] if options.out.exists() else []
    )
    done = {line["name"] for line in lines}
    names = {str(path.relative_to(options.folder)): path for path in sample(options.folder, options.sample)}
    left = [name for name in names if name not in done and options.only in name]
    random.Random(0).shuffle(left)  # so that a part of a run is a sample
    torch.set_num_threads(1)
    if left and not options.table:
        bench = Bench(options)
        with options.out.open("a") as out:
            for name in left:
                lines.append(bench.run(name, names[name]))
                print(json.dumps(lines[-1], ensure_ascii=False), file=out, flush=True)
        bench.compiler.close()
    print(*table([line for line in lines if options.only in line["name"]]), sep="\n")


if __name__ == "__main__":
    main()
