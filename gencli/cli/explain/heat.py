"""Output of a sweep's cells as text, CSV, JSON and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.terminal.tables import table
from gencli.errors import UsageError
from gencli.explain.grid import Axis
from gencli.explain.text_measures import MEASURES, mean_of

if TYPE_CHECKING:
    from gencli.cli.explain.sweep_run import CellResult

__all__ = [
    "cell_table",
    "cell_texts",
    "csv_lines",
    "grid_page",
    "heat_table",
    "means",
    "sweep_record",
    "write_png",
]

_SHADES = " ░▒▓█"
_UNITS = {"entropy": "nats", "surprise": "bits", "logprob": "nats"}


def means(cell: CellResult) -> dict[str, float | None]:
    """Return the mean of each measure over the cell's texts."""
    return {name: mean_of(one.measures[name] for one in cell.samples if not one.error) for name in MEASURES}


def cell_table(axes: Sequence[Axis], cells: Sequence[CellResult]) -> str:
    """Return a line for each cell, with the means of all measures that any cell has."""
    found = [means(cell) for cell in cells]
    names = [name for name in MEASURES if any(one[name] is not None for one in found)]
    return table(_lines(axes, cells, found, names))


def cell_texts(cells: Sequence[CellResult]) -> str:
    """Return the texts of all cells, each below a label with the values of its cell."""
    from gencli.cli.terminal.writers import block_label  # imports torch

    parts = []
    for place, cell in enumerate(cells, 1):
        values = " ".join(f"{key}={value}" for key, value in cell.values.items())
        for index, one in enumerate(cell.samples, 1):
            number = f"{place}.{index}" if len(cell.samples) > 1 else f"{place}"
            parts.append(f"\n{block_label(number, values)}\n{one.error or one.text}\n")
    return "".join(parts)


def _lines(
    axes: Sequence[Axis],
    cells: Sequence[CellResult],
    found: Sequence[Mapping[str, float | None]],
    names: Sequence[str],
) -> Iterator[tuple[str, ...]]:
    yield *(axis.key for axis in axes), *names, "failed"
    for cell, one in zip(cells, found, strict=True):
        failed = sum(bool(sample.error) for sample in cell.samples)
        yield *cell.values.values(), *(_number(one[name]) for name in names), str(failed or "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def heat_table(axes: Sequence[Axis], cells: Sequence[CellResult], measure: str) -> str:
    """Return one measure as a grid, the last axis in columns; darker shades mean larger values."""
    *outer, last = axes
    values = [means(cell)[measure] for cell in cells]
    known = [value for value in values if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    width = len(last.values)
    rows = [[" ".join(axis.key for axis in outer) or measure, *(f"{last.key} {one}" for one in last.values)]]
    for start in range(0, len(cells), width):
        before = list(cells[start].values.values())[:-1]
        shown = (_shaded(value, least, most) for value in values[start : start + width])
        rows.append([" ".join(before) or "", *shown, *[""] * (width - len(values[start : start + width]))])
    return f"{measure}: {MEASURES[measure]}\n" + table(rows)


def _shaded(value: float | None, least: float, most: float) -> str:
    if value is None:
        return "-"
    share = (value - least) / (most - least) if most > least else 0.0
    return f"{value:<8.4g}{_SHADES[round(share * (len(_SHADES) - 1))] * 3}".rstrip()


def csv_lines(axes: Sequence[Axis], cells: Sequence[CellResult]) -> str:
    """Return a line for each text, after a header."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow([*(axis.key for axis in axes), "prompt", "sample", "reason", *MEASURES, "text", "error"])
    for cell in cells:
        for one in cell.samples:
            measured = (one.measures[name] for name in MEASURES)
            place = one.prompt, one.sample, one.reason
            rows.writerow([*cell.values.values(), *place, *measured, one.text, one.error])
    return written.getvalue()


def sweep_record(
    axes: Sequence[Axis], cells: Sequence[CellResult], prompts: Sequence[str], shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the sweep as JSON: values shared by all cells, the axes, and each cell with its texts."""
    return {
        **shared,
        "prompts": list(prompts),
        "axes": [{"key": axis.key, "values": list(axis.values)} for axis in axes],
        "measures": dict(MEASURES),
        "cells": [
            {
                "values": dict(cell.values),
                "means": means(cell),
                "texts": [
                    {
                        "prompt": one.prompt, "sample": one.sample, "reason": one.reason, "text": one.text,
                        "error": one.error, **one.measures,
                    }
                    for one in cell.samples
                ],
            }
            for cell in cells
        ],
    }  # fmt: skip


def grid_page(axes: Sequence[Axis], cells: Sequence[CellResult], title: str) -> str:
    """Return the HTML page of the grid."""
    from gencli.explain.page import Axis as Line
    from gencli.explain.page import Cell, Measure, sweep_page

    found = [means(cell) for cell in cells]
    names = [name for name in MEASURES if any(one[name] is not None for one in found)]
    places = [{value: at for at, value in enumerate(axis.values)} for axis in axes]
    shown = [
        Cell(
            at=[place[value] for place, value in zip(places, cell.values.values(), strict=True)],
            measures=[one[name] for name in names],
            text="\n\n".join(sample.error or sample.text for sample in cell.samples),
        )
        for cell, one in zip(cells, found, strict=True)
    ]
    lines = [Line(axis.key, axis.values) for axis in axes]
    return sweep_page(title, lines, [Measure(name, _UNITS.get(name, "")) for name in names], shown)


def write_png(axes: Sequence[Axis], cells: Sequence[CellResult], measure: str, file: str) -> None:
    """Draw one measure of a grid of at most two axes. Raises UsageError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "A picture needs matplotlib.", hint="Install it with pip install 'gencli[plots]'."
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows, columns = (axes[0], axes[1]) if len(axes) == 2 else (Axis("", ("",)), axes[0])
    values = [means(cell)[measure] for cell in cells]
    numbers = [float("nan") if value is None else value for value in values]
    width = len(columns.values)
    grid = [numbers[start : start + width] for start in range(0, len(numbers), width)]
    figure, plot = pyplot.subplots(figsize=(2 + 0.8 * width, 1.8 + 0.6 * len(grid)), layout="constrained")
    image = plot.imshow(grid, aspect="auto", cmap="viridis")
    plot.set_xticks(range(width), columns.values)
    plot.set_yticks(range(len(grid)), rows.values)
    plot.set_xlabel(columns.key)
    plot.set_ylabel(rows.key)
    plot.set_title(f"{measure}: {MEASURES[measure]}", fontsize=9)
    for row, line in enumerate(grid):
        for column, value in enumerate(line):
            plot.text(
                column, row, _number(value), ha="center", va="center", fontsize=8, backgroundcolor="#ffffffb0"
            )
    figure.colorbar(image)
    try:
        figure.savefig(Path(file), format="png", dpi=100)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    finally:
        pyplot.close(figure)
