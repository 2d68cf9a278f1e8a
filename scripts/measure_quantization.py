"""What weights of 8 and 4 bits cost and gain, beside those in float32.

    python scripts/measure_quantization.py quality [--documents 300] [--sentences 200]
    python scripts/measure_quantization.py speed [--model FOLDER] [--rows 1 4 8] [--steps 20]

`quality` measures the bundled model on held-out documents: perplexity, the share of positions with the same
most likely token as in float32, and the share of right records (scripts/measure_extraction.py). `speed`
prints the median milliseconds of a decode step behind 64 tokens, the formats in turns.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from measure_extraction import scores  # noqa: E402
from tiny_corpus import documents  # noqa: E402

from gencli.core.request import Feed, StepPlan  # noqa: E402
from gencli.models.files.model_files import Quantize  # noqa: E402
from gencli.models.model_runner import ModelRunner  # noqa: E402
from gencli.runtime.model_loading import Loaded, ModelChoice, load  # noqa: E402

FORMATS: tuple[Quantize, ...] = ("none", "int8", "int4")
SEED, START = 7, 64


def loaded(model: str, quantize: Quantize, rows: int) -> Loaded:
    """Load a model in one format."""
    return load(
        ModelChoice(model, dtype="float32", device="cpu", max_batch=rows, quantize=quantize, rows=rows)
    )


def log_probabilities(runner: ModelRunner, texts: Sequence[Sequence[int]]) -> Iterator[torch.Tensor]:
    """Yield the log-probabilities [tokens - 1, V] behind each token of each text but the last."""
    for ids in texts:
        logits = runner.forward(StepPlan((Feed(0, 0, tuple(ids[:-1]), len(ids) - 1),)))
        runner.release(0)
        yield logits.float().log_softmax(-1)


def quality(num_documents: int, num_sentences: int) -> None:
    """Print a row for each format."""
    best: list[torch.Tensor] = []
    print("weights   perplexity   same token as float32   records with the schema / without")
    for quantize in FORMATS:
        model = loaded("tiny", quantize, 16)
        held_out = islice(documents(SEED, "held-out"), num_documents)
        texts = [model.tokenizer.encode(text)[:512] for text in held_out]
        loss = count = same = 0.0
        for place, (ids, found) in enumerate(zip(texts, log_probabilities(model.runner, texts), strict=True)):
            loss -= float(found.gather(1, torch.tensor(ids[1:])[:, None]).sum())
            chosen = found.argmax(-1)
            if quantize == "none":
                best.append(chosen)
            same, count = same + float((chosen == best[place]).sum()), count + len(chosen)
        right = [score for _, score in scores(model, num_sentences)]
        print(
            f"{quantize:8}  {math.exp(loss / count):10.4f}   {100 * same / count:19.2f} %   "
            f"{right[0]} / {right[1]} of {num_sentences}"
        )


def speed(model: str, rows: Sequence[int], steps: int) -> None:
    """Print the time of a step for each format and number of rows."""
    runners = {quantize: loaded(model, quantize, max(rows)).runner for quantize in FORMATS}
    for count in rows:
        times: dict[str, list[float]] = {quantize: [] for quantize in FORMATS}
        for runner in runners.values():
            for lane in range(count):
                runner.forward(StepPlan((Feed(lane, 0, tuple(range(10, 10 + START))),)))
        for step in range(steps + 2):
            plan = StepPlan(tuple(Feed(lane, START + step, (10 + step,)) for lane in range(count)))
            for quantize, runner in runners.items():
                begin = time.perf_counter()
                runner.forward(plan)
                times[quantize].append(1000 * (time.perf_counter() - begin))
        for runner in runners.values():
            for lane in range(count):
                runner.release(lane)
        medians = {quantize: statistics.median(found[2:]) for quantize, found in times.items()}
        shown = ", ".join(
            f"{quantize} {median:.1f} ms ({medians['none'] / median:.2f} times)"
            for quantize, median in medians.items()
        )
        print(f"{count} rows: {shown}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = parser.add_subparsers(dest="word", required=True)
    first, second = words.add_parser("quality"), words.add_parser("speed")
    first.add_argument("--documents", type=int, default=300)
    first.add_argument("--sentences", type=int, default=200)
    second.add_argument("--model", default="tiny")
    second.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    second.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    with torch.inference_mode():
        if given.word == "quality":
            quality(given.documents, given.sentences)
        else:
            speed(given.model, given.rows, given.steps)


if __name__ == "__main__":
    main()
