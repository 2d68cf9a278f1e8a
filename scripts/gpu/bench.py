"""Measure on a card what `scripts/bench/gpu.py` measures, each line written as soon as it is there.

    python scripts/gpu/bench.py OUT.jsonl [--steps N] [--rows N,N] PHASE ...

A PHASE is `chains`, `parts:SHAPE` or `steps:SHAPE` (1B, 8B). A time limit then costs the last lines only.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import IO

import torch
from gpu import measure_card
from gpu_kernels import WIDTHS, measure_chains, measure_kernels, measure_rejection
from gpu_layers import measure_parts
from gpu_steps import measure_steps
from predictions import SHAPES, GpuCost
from stopwatch import CudaStopwatch

from gencli.errors import UsageError
from gencli.models.gpus import gpu_named


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure parts of a decode step on a card.")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("phases", nargs="+", metavar="PHASE")
    given = parser.parse_args()
    device, counts = torch.device("cuda", 0), [int(count) for count in given.rows.split(",")]
    try:
        gpu = gpu_named(torch.cuda.get_device_name(device))
    except UsageError:
        gpu = None  # no predictions
    watch, width = CudaStopwatch(device), WIDTHS[1]
    torch.set_num_threads(1)
    with open(given.out, "w", encoding="utf-8") as file:
        with torch.inference_mode():
            card = written(measure_card(gpu, watch, device), file)
        read = max(1e9 * (cost.gb_per_s or 0) for cost in card)
        for phase in given.phases:
            kind, _, shape = phase.partition(":")
            with torch.inference_mode(kind != "steps"):
                if kind == "chains":
                    written(measure_kernels(gpu, read, watch, device, [width], counts), file)
                    written(measure_chains(gpu, read, watch, device, [width], counts), file)
                    written([measure_rejection(gpu, read, watch, device, width)], file)
                elif kind == "parts":
                    written(measure_parts(gpu, read, watch, device, [SHAPES[shape]], counts), file)
                else:
                    torch.cuda.empty_cache()
                    found = measure_steps(
                        gpu, read, watch, device, [SHAPES[shape]], counts, context=512, steps=given.steps
                    )
                    written(found, file)


def written(costs: Iterable[GpuCost], file: IO[str]) -> list[GpuCost]:
    """Write each cost as a line of JSON; return them."""
    kept = []
    for cost in costs:
        line = {key: value for key, value in asdict(cost).items() if value is not None}
        print(json.dumps(line), file=file, flush=True)
        kept.append(cost)
    return kept


if __name__ == "__main__":
    main()
