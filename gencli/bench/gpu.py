"""Measures the parts of a decode step on a GPU, in microseconds, together with predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gencli.bench.gpu_kernels import WIDTHS, measure_chains, measure_kernels, measure_rejection
from gencli.bench.gpu_layers import measure_parts
from gencli.bench.gpu_steps import measure_steps
from gencli.bench.predictions import Shape
from gencli.bench.records import GpuCost
from gencli.bench.stopwatch import CudaStopwatch, Stopwatch
from gencli.errors import UsageError
from gencli.models.cards import Gpu, gpu_named

__all__ = ["measure_card", "measure_gpu"]

_LARGE = 1 << 31  # bytes read to measure the bandwidth; far more than any cache


def measure_gpu(
    card: str | None, shapes: Sequence[Shape], counts: Sequence[int], *, context: int, steps: int
) -> tuple[list[GpuCost], dict[str, Any]]:
    """Return the measurements on the current GPU, and the conditions.

    Predictions are for the GPU named `card`, or for this one if the table has it.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    about = torch.cuda.get_device_properties(device)
    watch, gpu = CudaStopwatch(device), _predicted_for(card, about.name)
    with torch.inference_mode():
        costs = [*measure_card(gpu, watch, device)]
        read = max((cost.gb_per_s or 0) * 1e9 for cost in costs)
        costs += measure_kernels(gpu, read, watch, device, WIDTHS, counts)
        costs += measure_chains(gpu, read, watch, device, WIDTHS, counts)
        costs.append(measure_rejection(gpu, read, watch, device, WIDTHS[1]))
        costs += measure_parts(gpu, read, watch, device, shapes, counts)
    torch.cuda.empty_cache()
    costs += measure_steps(gpu, read, watch, device, shapes, counts, context=context, steps=steps)
    conditions = {
        "card": about.name,
        "multiprocessors": about.multi_processor_count,
        "memory": f"{about.total_memory / 2**30:.1f} GiB",
        "torch": torch.__version__,
        "predicted for": gpu.name if gpu else "no card",
        "context": context,
        "steps": steps,
    }
    return costs, conditions


def measure_card(
    gpu: Gpu | None, watch: Stopwatch, device: torch.device, size: int = _LARGE
) -> Iterator[GpuCost]:
    """Yield the bandwidth of reading and of copying `size` bytes, and the time of launches."""
    large = torch.zeros(size // 4, dtype=torch.float32, device=device)
    other = torch.empty_like(large)
    for name, call, moved in (
        ("read (sum)", lambda: large.sum(), size),
        ("read (largest)", lambda: large.amax(), size),
        ("copy", lambda: other.copy_(large), 2 * size),
    ):
        us = watch.us(call)
        yield GpuCost(
            part="card",
            what=name,
            how="graphs",
            rows=None,
            width=None,
            predicted_us=None if gpu is None else 1e6 * moved / gpu.read,
            measured_us=us,
            gb_per_s=moved / us / 1e3,
        )
    one = torch.zeros(1, device=device)
    for name, is_graph in (("a launch", False), ("a kernel of a graph", True)):
        expected = None if gpu is None else 1e6 * (gpu.graph_launch if is_graph else gpu.launch)
        us = watch.us(lambda: one.add_(1), is_graph=is_graph)
        yield GpuCost("card", name, "graphs" if is_graph else "eager", None, None, expected, us)


def _predicted_for(card: str | None, name: str) -> Gpu | None:
    if card is not None:
        return gpu_named(card)
    try:
        return gpu_named(name)
    except UsageError:
        return None
