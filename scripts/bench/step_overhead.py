"""Cost of one decode step: the runner and the whole engine against a bare loop over the library's cache.

    python scripts/bench/step_overhead.py [--rows 1 8] [--steps 300] [--threads 1]

The model is a random Llama of about 14M parameters, small enough for overhead to show. The variants alternate
step by step, so that other load slows all of them. Printed are medians, also of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from random_models import random_llama

from processors.chain import Chain

PROMPT = 32


def build_model() -> Any:
    """Return a model whose forward pass is mostly Python time on a fast machine."""
    return random_llama(hidden_size=384, intermediate_size=1024, vocab_size=8192)


def bare_steps(model: Any, rows: int) -> Iterator[None]:
    """Decode with the model, DynamicCache and argmax."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    ids = torch.arange(rows * PROMPT).view(rows, PROMPT)
    while True:
        logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=1).logits
        ids = logits[:, -1].argmax(-1, keepdim=True)
        ids.tolist()
        yield


def runner_steps(model: Any, rows: int, *, stagger: int) -> Iterator[None]:
    """Decode through HFRunner + argmax; lane i starts with i * stagger fewer tokens."""
    from gencli.core.request import Feed, StepPlan
    from gencli.models.hf_runner import HFRunner

    runner = HFRunner(model, max_lanes=rows)
    held = [0] * rows
    tokens = [tuple(range(i * PROMPT, (i + 1) * PROMPT - i * stagger)) for i in range(rows)]
    while True:
        feeds = tuple(Feed(i, held[i], tokens[i]) for i in range(rows))
        ids = runner.forward(StepPlan(feeds)).argmax(-1).tolist()
        held = [start + len(fed) for start, fed in zip(held, tokens, strict=True)]
        tokens = [(token,) for token in ids]
        yield


def engine_steps(model: Any, rows: int) -> Iterator[None]:
    """Decode through the engine: default chain, Gumbel draws, detokenizing, events."""
    from gencli.core.events import Token
    from gencli.core.request import Limits, Request
    from gencli.models.hf_runner import HFRunner
    from gencli.runtime.wiring import bare_engine
    from gencli.text.tokenizer import ByteTokenizer

    engine = bare_engine(HFRunner(model, max_lanes=rows), ByteTokenizer(), max_batch=rows)
    for row in range(rows):
        prompt = tuple(range(row * PROMPT, (row + 1) * PROMPT))
        chain = Chain.parse("ignore_eos=true")
        engine.submit(Request(str(row), prompt, chain, seed=row, limits=Limits(max_tokens=4000)))
    events = (event for event in engine.run() if isinstance(event, Token))
    while True:
        for _ in range(rows):
            next(events)
        yield


def timed(steps: Iterator[None]) -> float:
    """Return the milliseconds of one step."""
    started = time.perf_counter()
    next(steps)
    return (time.perf_counter() - started) * 1e3


@torch.inference_mode()
def compare(rows: int, num_steps: int, *, stagger: int = 0) -> None:
    """Print the medians of all variants, and the median ratios of neighbouring steps."""
    loops = [
        bare_steps(build_model(), rows),
        runner_steps(build_model(), rows, stagger=stagger),
        engine_steps(build_model(), rows),
    ]
    rounds = [[timed(steps) for steps in loops] for _ in range(num_steps + 10)][10:]
    bare, runner, engine = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratios = [statistics.median(times[i] / times[0] for times in rounds) for i in (1, 2)]
    label = f"{rows} rows" + (", staggered" if stagger else "")
    print(f"{label:18} bare {bare:7.3f} ms   runner {runner:7.3f} ms ({ratios[0]:.3f})   ", end="")
    print(f"engine {engine:7.3f} ms ({ratios[1]:.3f})", flush=True)


def main() -> None:
    """Compare at each number of rows: equal lengths, then staggered ones."""
    parser = argparse.ArgumentParser(description="cost of a decode step against a bare loop")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size = sum(parameter.numel() for parameter in build_model().parameters())
    print(f"{size / 1e6:.1f}M parameters, float32, {options.threads} thread(s), {options.steps} steps")
    for rows in options.rows:
        compare(rows, options.steps)
        if rows > 1:
            compare(rows, options.steps, stagger=3)


if __name__ == "__main__":
    main()
