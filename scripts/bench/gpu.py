"""Measure kernels and decode steps on a GPU, beside predictions.

python scripts/bench/gpu.py --help
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from gpu_kernels import WIDTHS, measure_chains, measure_kernels, measure_rejection
from gpu_layers import measure_parts
from gpu_steps import measure_steps
from predictions import GpuCost, Shape
from report import LogitRows, measuring, run_benchmark
from stopwatch import CudaStopwatch, Stopwatch

from gencli.cli.commands.bench import Form, cells, write_report
from gencli.errors import ModelError, UsageError
from gencli.models.gpus import Gpu, gpu_named

_Predict = Annotated[bool, typer.Option("--predict", help="Print the predictions alone; needs no GPU.")]
_Card = Annotated[
    str | None,
    typer.Option(
        "--card", metavar="NAME", help="GPU of the predictions; the one that is there if not given."
    ),
]
_Models = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME", help="Model shapes: 1B, 8B; both if not given. (repeatable)"),
]
_Layers = Annotated[
    int | None, typer.Option("--layers", min=1, max=256, metavar="N", help="Layers instead of the shape's.")
]
_Keys = Annotated[
    int, typer.Option("--context", min=1, max=8000, metavar="N", help="Tokens of each text before the steps.")
]
_Steps = Annotated[
    int, typer.Option("--steps", min=1, max=10_000, metavar="N", help="Decode steps measured.")
]
_Markdown = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", help="Also write the table in Markdown, with card and date."),
]


def gpu(
    predict: _Predict = False,
    card: _Card = None,
    shape: _Models = None,
    rows: LogitRows = None,
    layers: _Layers = None,
    context: _Keys = 512,
    steps: _Steps = 64,
    markdown: _Markdown = None,
    form: Form = "text",
) -> int:
    """Print predictions with measurements, or alone. Return the exit code.

    Raises UsageError for an unknown card or shape, ModelError without a GPU to measure on.
    """
    from gpu_parts import predict_parts
    from predictions import SHAPES, predict_steps

    from gencli.models.gpus import gpu_named

    if unknown := [name for name in shape or () if name not in SHAPES]:
        raise UsageError(f"--shape {unknown[0]!r} is no model shape.", hint=f"Use {' or '.join(SHAPES)}.")
    shapes = [
        SHAPES[name] if layers is None else replace(SHAPES[name], layers=layers) for name in shape or SHAPES
    ]
    counts = rows or [1, 8, 32]
    if predict:
        if card is None:
            raise UsageError("--predict needs the name of a GPU.", hint="Name one, as --card H200.")
        chosen = gpu_named(card)
        costs = [*predict_parts(chosen, shapes, counts), *predict_steps(chosen, shapes, counts, context)]
        conditions: dict[str, Any] = {"card": chosen.name, "context": context, **_assumed(chosen)}
    else:
        with measuring(threads=1):
            costs, conditions = _measured(card, shapes, counts, context, steps)
    if markdown is not None:
        markdown.write_text(_markdown(costs, conditions), encoding="utf-8")
    write_report(costs, form, conditions=conditions)
    return 0


def _measured(
    card: str | None, shapes: Sequence[Any], counts: Sequence[int], context: int, steps: int
) -> tuple[list[GpuCost], dict[str, Any]]:
    import torch

    from gencli.models.device import no_gpu_reason

    if not torch.cuda.is_available():
        raise ModelError(
            f"There is no GPU to measure: {no_gpu_reason()}.",
            hint="Predictions alone need none: --predict --card H200.",
        )

    return measure_gpu(card, shapes, counts, context=context, steps=steps)


def _assumed(chosen: Gpu) -> Mapping[str, Any]:
    """Return the figures of a GPU that predictions use, with units, by name."""
    return {
        "bandwidth": f"{chosen.bandwidth / 1e9:.0f} GB/s",
        "read": f"{chosen.read / 1e9:.0f} GB/s",
        "launch": f"{chosen.launch * 1e6:.1f} us",
        "graph launch": f"{chosen.graph_launch * 1e6:.1f} us",
    }


def _markdown(costs: Sequence[GpuCost], conditions: Mapping[str, Any]) -> str:
    """Return the date, the conditions and a table of the costs in Markdown, for the page of measurements."""
    head, *lines = cells(costs)
    facts = ", ".join(f"{name} {value}" for name, value in conditions.items())
    rule = "|" + "---|" * len(fields(costs[0]))
    shown = [f"{date.today().isoformat()}, {facts}.", "", _line(head), rule, *map(_line, lines)]
    return "\n".join(shown) + "\n"


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


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


MEASURES = (
    "Measure the GPU: its read bandwidth, a launch and the replay of a graph, kernels, chains with their "
    "draw, a step of rejection, and decode steps of random models; beside what was predicted for such a "
    "GPU. With --predict only the predictions are printed, for the GPU that --card names."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(gpu, MEASURES, GpuCost))
