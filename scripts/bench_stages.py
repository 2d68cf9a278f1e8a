"""Milliseconds of chains and of the draw on the logits of one step.

    python scripts/bench_stages.py [CHAIN ...] [--rows 1 8 32] [--width 151936] [--threads 1]

The logits are 3 x standard normal: top-p alone keeps 13,000 of them, after a low temperature or top-k few.
Each time is the minimum of nine; the draw is Gumbel-max.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import gumbel_max

CHAINS = (
    "temperature=0.8",
    "top_k=50",
    "top_p=0.95",
    "min_p=0.05",
    "repetition=1.1",
    "frequency=0.5",
    "temperature=0.2 | top_p=0.95",
    "temperature=0.8 | top_k=50 | top_p=0.95",
)
PROMPT = tuple(range(5, 300))


def main() -> None:
    """Print a line for each chain and number of rows."""
    told = _told()
    torch.set_num_threads(told.threads)
    print(f"{told.width} ids, {told.threads} threads; milliseconds")
    print(f"{'rows':>4} {'chain':42} {'chain':>8} {'draw':>8}")
    for rows in told.rows:
        logits = 3 * torch.randn(rows, told.width, generator=torch.Generator().manual_seed(0))
        for text in told.chains or CHAINS:
            pipeline, step = _admitted(Chain.parse(text), rows, told.width)
            stages, found = _best(pipeline, logits, step)
            draw, _ = _best(gumbel_max, found, step.seeds, step.positions)
            print(f"{rows:4} {text:42} {stages:8.2f} {draw:8.2f}")


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chains", nargs="*")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--width", type=int, default=151_936)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _admitted(chain: Chain, rows: int, width: int) -> tuple[Pipeline, Rows]:
    pipeline, history = Pipeline(Env(vocab_size=width)), History(slots=rows)
    for slot in range(rows):
        history.admit(slot, PROMPT, seed=slot)
        pipeline.admit(slot, chain, Admission(PROMPT))
    return pipeline, Rows.build(history, range(rows))


def _best(run: Callable[..., Tensor], *values: object) -> tuple[float, Tensor]:
    """Return the least of nine times in milliseconds, and the result."""
    least, out = float("inf"), run(*values)
    for _ in range(9):
        begin = time.perf_counter()
        out = run(*values)
        least = min(least, time.perf_counter() - begin)
    return 1000 * least, out


if __name__ == "__main__":
    main()
