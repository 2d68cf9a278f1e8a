"""`gencli bench gpu`: predicted times of kernels and decode steps on a GPU, with measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gencli.cli.commands.bench_report import Form, LogitRows, cells, measuring, write_report
from gencli.errors import ModelError, UsageError

if TYPE_CHECKING:
    from gencli.bench.records import GpuCost
    from gencli.models.cards import Gpu

__all__ = ["gpu"]

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
    from gencli.bench.gpu_parts import predict_parts
    from gencli.bench.predictions import SHAPES, predict_steps
    from gencli.models.cards import gpu_named

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
    from gencli.bench.gpu import measure_gpu

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
    """Return the date, the conditions and a table of the costs in Markdown, for docs/performance.md."""
    head, *lines = cells(costs)
    facts = ", ".join(f"{name} {value}" for name, value in conditions.items())
    rule = "|" + "---|" * len(fields(costs[0]))
    shown = [f"{date.today().isoformat()}, {facts}.", "", _line(head), rule, *map(_line, lines)]
    return "\n".join(shown) + "\n"


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"
