"""Cost of one decode step: the runner against a bare loop over the library's own cache.

    python scripts/bench_step.py [--rows 1 8] [--blocks 20] [--threads 2]

The model is a random Llama of about 15M parameters. Blocks of steps alternate between the two, so
that a busy machine slows both; printed is the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch

PROMPT, STEPS = 32, 32


def build_model() -> torch.nn.Module:
    """A random Llama shape whose forward is mostly Python, the worst case for a runner."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        vocab_size=8192,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def bare_blocks(model: torch.nn.Module, rows: int) -> Iterator[float]:
    """Seconds per block of STEPS: model + DynamicCache + argmax, nothing else."""
    from transformers import DynamicCache

    while True:
        with torch.inference_mode():
            cache = DynamicCache(config=model.config)
            ids = torch.arange(rows * PROMPT).view(rows, PROMPT)
            ids = model(input_ids=ids, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1)
            started = time.perf_counter()
            for _ in range(STEPS):
                logits = model(input_ids=ids[:, None], past_key_values=cache, logits_to_keep=1).logits
                ids = logits[:, -1].argmax(-1)
                ids.tolist()
            yield time.perf_counter() - started


def runner_blocks(model: torch.nn.Module, rows: int, *, stagger: int = 0) -> Iterator[float]:
    """Seconds per block of STEPS through HFRunner; lane i starts with i * stagger fewer tokens."""
    from gencli.models.hf import HFRunner
    from gencli.plan import Feed, StepPlan

    runner = HFRunner(model, max_lanes=rows)
    while True:
        with torch.inference_mode():
            prompts = [tuple(range(i * PROMPT, (i + 1) * PROMPT - i * stagger)) for i in range(rows)]
            plan = StepPlan(tuple(Feed(lane, 0, prompt) for lane, prompt in enumerate(prompts)))
            ids = runner.forward(plan).argmax(-1).tolist()
            started = time.perf_counter()
            for step in range(STEPS):
                feeds = [Feed(i, len(prompts[i]) + step, (ids[i],)) for i in range(rows)]
                ids = runner.forward(StepPlan(tuple(feeds))).argmax(-1).tolist()
            yield time.perf_counter() - started
        for lane in range(rows):
            runner.release(lane)


def compare(label: str, bare: Iterator[float], ours: Iterator[float], blocks: int) -> None:
    """Print both in ms a step and the median of the paired ratios."""
    next(bare), next(ours)
    pairs = [(next(bare), next(ours)) for _ in range(blocks)]
    bare_ms, ours_ms = (statistics.median(side) / STEPS * 1e3 for side in zip(*pairs, strict=True))
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    print(f"{label:24} bare {bare_ms:7.3f} ms   runner {ours_ms:7.3f} ms   ratio {ratio:.3f}")


def main() -> None:
    """Compare at each number of rows, equal lengths and staggered ones."""
    parser = argparse.ArgumentParser(description="cost of a decode step against a bare loop")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    make: Callable[[], torch.nn.Module] = build_model
    model = make()
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size / 1e6:.1f}M parameters, float32, {options.threads} threads, blocks of {STEPS} steps")
    for rows in options.rows:
        compare(f"{rows} rows", bare_blocks(model, rows), runner_blocks(model, rows), options.blocks)
        if rows > 1:
            label = f"{rows} rows, staggered"
            compare(label, bare_blocks(model, rows), runner_blocks(model, rows, stagger=3), options.blocks)


if __name__ == "__main__":
    main()
