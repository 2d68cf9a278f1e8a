"""Rejection sampling at 64 requests x 5 drafts x 128k ids against its plain loop and against one read.

    PYTHONPATH=. python scripts/measure_rejection.py [--requests 64] [--drafts 5] [--width 128000]
        [--device cpu]

Ratios of one run: the loop's time is that of a few requests, scaled; "read" sums p and q once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from processors.history import History
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verification import Proposal, rejection
from tests.processors.reference.draw_twins import rejection as plain_rejection

LOOPED = 2  # requests that the plain loop is timed on


def main() -> None:
    """Print the three times and their ratios."""
    told = _told()
    target, source, rows, sampler = _case(told)
    drawn = (True,) * len(source)
    proposal = Proposal(source, drawn)
    fast = _best(lambda: rejection(target, rows, sampler, proposal), told.device)
    drafts = rows.drafted()[rows.offsets < told.drafts]
    places = torch.arange(len(drafts), device=told.device)
    known = Proposal(source, drawn, proposal.chances(drafts, places))
    faster = _best(lambda: rejection(target, rows, sampler, known), told.device)
    read = _best(lambda: (target.sum(), source.sum()), told.device)
    print(
        f"{told.requests} x {told.drafts} x {told.width} on {told.device}, {torch.get_num_threads()} threads"
    )
    print(f"batched {fast:8.2f} ms   read once {read:8.2f} ms   ratio {fast / read:6.2f}")
    print(f"q known {faster:8.2f} ms                          ratio {faster / read:6.2f}")
    if told.device == "cpu":
        loop = _loop(target, source, rows, told.drafts) * told.requests / LOOPED
        print(f"plain loop {loop:8.0f} ms   ratio {loop / fast:6.0f}")


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--drafts", type=int, default=5)
    parser.add_argument("--width", type=int, default=128_000)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def _case(told: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor, Rows, Sampler]:
    torch.manual_seed(0)
    source = torch.randn(told.requests * told.drafts, told.width, device=told.device)
    # The target agrees with the draft about two thirds of the time.
    close = source.view(told.requests, told.drafts, -1) + 0.5 * torch.randn_like(source).view(
        told.requests, told.drafts, -1
    )
    bonus = torch.randn(told.requests, 1, told.width, device=told.device)
    target = torch.cat([close, bonus], dim=1).flatten(0, 1)
    drafts = source.softmax(-1).multinomial(1).view(told.requests, told.drafts).tolist()
    history, sampler = History(told.device, slots=told.requests), Sampler()
    for slot in range(told.requests):
        history.admit(slot, [1], seed=slot)
        sampler.admit(slot, "gumbel")
    return target, source, Rows.build(history, range(told.requests), drafts), sampler


def _best(run: Callable[[], object], device: str, times: int = 7) -> float:
    """Return the least of several times in milliseconds."""
    found = []
    for _ in range(times):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        found.append(time.perf_counter() - start)
    return 1000 * min(found)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _loop(target: torch.Tensor, source: torch.Tensor, rows: Rows, drafts: int) -> float:
    """Return the milliseconds of the plain loop on the first requests, without the conversion to lists."""
    total = 0.0
    for slot in range(LOOPED):
        p = target[slot * (drafts + 1) : (slot + 1) * (drafts + 1)].tolist()
        q = source[slot * drafts : (slot + 1) * drafts].tolist()
        run = rows.drafts[slot * (drafts + 1)].tolist()
        start = time.perf_counter()
        plain_rejection(p, run, q, slot, 0)
        total += time.perf_counter() - start
    return 1000 * total


if __name__ == "__main__":
    main()
