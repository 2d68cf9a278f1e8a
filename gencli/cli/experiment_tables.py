"""Results of `gencli sweep` and `gencli compare` as text, CSV, JSON and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.render import table
from gencli.cli.token_views import probability, quoted
from gencli.config.option_names import with_flags
from gencli.errors import UsageError
from gencli.explain.text_sets import MEASURES, SweepAxis, mean_of
from gencli.explain.trace_file import text_label
from gencli.helpers import counted, shortened
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from gencli.cli.experiment_runs import CellResult


_SHADES = " ░▒▓█"
_UNITS = {"entropy": "nats", "surprise": "bits", "logprob": "nats"}


def means(cell: CellResult) -> dict[str, float | None]:
    """Return the mean of each measure over the cell's texts."""
    samples = [sample for sample in cell.samples if not sample.error]
    return {name: mean_of(sample.measures[name] for sample in samples) for name in MEASURES}


def cell_table(axes: Sequence[SweepAxis], cells: Sequence[CellResult]) -> str:
    """Return a line for each cell, with the means of all measures that any cell has."""
    by_cell, names = _means_and_names(cells)
    rows = [(*(axis.key for axis in axes), *names, "failed")]
    for cell, values in zip(cells, by_cell, strict=True):
        failed = sum(bool(sample.error) for sample in cell.samples)
        rows.append((*cell.values.values(), *(_number(values[name]) for name in names), str(failed or "")))
    return table(rows)


def _means_and_names(cells: Sequence[CellResult]) -> tuple[list[dict[str, float | None]], list[str]]:
    # The means of each cell, and the names of the measures that any cell has.
    by_cell = [means(cell) for cell in cells]
    return by_cell, [name for name in MEASURES if any(values[name] is not None for values in by_cell)]


def cell_texts(cells: Sequence[CellResult]) -> str:
    """Return the texts of all cells, each below a label with the values of its cell."""
    from gencli.cli.result_writers import block_label

    parts = []
    for number, cell in enumerate(cells, 1):
        values = " ".join(f"{key}={value}" for key, value in cell.values.items())
        for index, sample in enumerate(cell.samples):
            label = text_label((str(number), index), len(cell.samples))
            parts.append(f"\n{block_label(label, values)}\n{sample.error or sample.text}\n")
    return "".join(parts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def heat_table(axes: Sequence[SweepAxis], cells: Sequence[CellResult], measure: str) -> str:
    """Return one measure as a grid, the last axis in columns; darker shades mean larger values."""
    *outer, last = axes
    values = [means(cell)[measure] for cell in cells]
    numbers = [value for value in values if value is not None]
    least, largest = min(numbers, default=0.0), max(numbers, default=0.0)
    width = len(last.values)
    heads = [f"{last.key} {value}" for value in last.values]
    rows = [[" ".join(axis.key for axis in outer) or measure, *heads]]
    for start in range(0, len(cells), width):
        before = list(cells[start].values.values())[:-1]
        shown = [" ".join(before)]
        for value in values[start : start + width]:
            share = (value - least) / (largest - least) if value is not None and largest > least else 0.0
            shade = _SHADES[round(share * (len(_SHADES) - 1))] * 3
            shown.append("-" if value is None else f"{value:<8.4g}{shade}".rstrip())
        rows.append([*shown, *[""] * (width + 1 - len(shown))])
    return f"{measure}: {MEASURES[measure]}\n" + table(rows)


def csv_lines(axes: Sequence[SweepAxis], cells: Sequence[CellResult]) -> str:
    """Return a line for each text, after a header."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow([*(axis.key for axis in axes), "prompt", "sample", "reason", *MEASURES, "text", "error"])
    for cell in cells:
        for s in cell.samples:
            measures = (s.measures[name] for name in MEASURES)
            rows.writerow([*cell.values.values(), s.prompt, s.sample, s.reason, *measures, s.text, s.error])
    return written.getvalue()


def sweep_record(
    axes: Sequence[SweepAxis], cells: Sequence[CellResult], prompts: Sequence[str], shared: Mapping[str, Any]
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
                        "prompt": s.prompt, "sample": s.sample, "reason": s.reason, "text": s.text,
                        "error": s.error, **s.measures,
                    }
                    for s in cell.samples
                ],
            }
            for cell in cells
        ],
    }  # fmt: skip


def grid_page(axes: Sequence[SweepAxis], cells: Sequence[CellResult], title: str) -> str:
    """Return the HTML page of the grid."""
    from gencli.explain.page import Axis, Cell, Measure, sweep_page

    by_cell, names = _means_and_names(cells)
    indices = [{value: at for at, value in enumerate(axis.values)} for axis in axes]
    shown = [
        Cell(
            at=[index[value] for index, value in zip(indices, cell.values.values(), strict=True)],
            measures=[values[name] for name in names],
            text="\n\n".join(sample.error or sample.text for sample in cell.samples),
        )
        for cell, values in zip(cells, by_cell, strict=True)
    ]
    lines = [Axis(axis.key, axis.values) for axis in axes]
    return sweep_page(title, lines, [Measure(name, _UNITS.get(name, "")) for name in names], shown)


def write_png(axes: Sequence[SweepAxis], cells: Sequence[CellResult], measure: str, file: str) -> None:
    """Draw one measure of a grid of at most two axes. Raises UsageError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        hint = "Install it with pip install 'gencli[plots]'."
        raise UsageError("A picture needs matplotlib.", hint=hint) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows, columns = (axes[0], axes[1]) if len(axes) == 2 else (SweepAxis("", ("",)), axes[0])
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
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
            plot.text(column, row, _number(value), **style, backgroundcolor="#ffffffb0")
    figure.colorbar(image)
    try:
        figure.savefig(Path(file), format="png", dpi=100)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    finally:
        pyplot.close(figure)


_MAX_POSITIONS = 20  # in a table
_MAX_CHAIN = 200  # characters
_WHY = {
    "kept": "whose logits do not decide it: too few are kept, or they are not those of A's text",
    "empty": "where B leaves no token",
    "grammar": "behind text that B's grammar does not allow",
}


def head_text(head: Mapping[str, Any]) -> str:
    """Return the chains of both sides, and the seed."""
    sides = [(key.upper(), head[key]) for key in "ab" if head.get(key)]
    lines = []
    for name, side in sides:
        chain = escape_controls(side["chain"]).replace("\n", "\\n") or "no stages"
        lines.append(f"{name:<6}{shortened(chain, _MAX_CHAIN)} ({side['draw']})\n")
    return "".join(lines) + (f"seed  {head['seed']}\n" if "seed" in head else "")


def comparison_text(record: Mapping[str, Any]) -> str:
    """Return the page of a prompt: both texts, the positions where B chooses another token, the totals."""
    parts = [f"== {escape_controls(record['id'])}: {quoted(record['prompt'])}\n", *_texts(record)]
    parted = [position for position in record["places"] if position["parted"]]
    if parted:
        parts.append("\n" + table([_HEAD, *map(_row, parted[:_MAX_POSITIONS])]))
    if more := parted[_MAX_POSITIONS:]:
        parts.append(f"... and {len(more)} more; --format jsonl has all.\n")
    return "".join(parts) + "\n" + summary_text(record["summary"])


def _texts(record: Mapping[str, Any]) -> Iterator[str]:
    a, b, at = record["a"], record["b"], record["parted_at"]
    if b is None or (record["equal"] and not a["error"]):
        yield _lines("A" if b is None else "A, B", a["text"])
        return
    length = len(a["tokens"]) if at is None else at
    shared = "".join(text or "" for _, text in a["tokens"][:length])
    if not (a["text"].startswith(shared) and b["text"].startswith(shared)):
        pairs = zip(a["text"], b["text"], strict=False)  # a stop may have truncated one of them
        shared = "".join(char for char, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    yield _lines("both", shared)
    for name, side in (("A", a), ("B", b)):
        end = with_flags(side["error"] or "") or side["finish_reason"]
        yield _lines(name, side["text"][len(shared) :], end)
    if at is not None:
        yield f"They part at token {at}: {_at(a, at)} in A, {_at(b, at)} in B.\n"


def _lines(name: str, text: str, end: str = "") -> str:
    shown = escape_controls(text).replace("\n", "\n      ")
    return f"{name:<6}{shown}" + (f" [{escape_controls(end)}]" if end else "") + "\n"


def _at(side: Mapping[str, Any], at: int) -> str:
    return _token(side["tokens"][at]) if at < len(side["tokens"]) else "the end"


def _token(named: list[Any]) -> str:
    token, text = named
    return quoted(text) if text else f"id {token}"


_HEAD = ("pos", "A", "B", "TV", "KL A|B", "KL B|A", "decided A", "decided B")


def _row(position: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(position["pos"]), _token(position["a"]), _token(position["b"]), probability(position["tv"]),
        _bits(position["kl_ab"]), _bits(position["kl_ba"]), _names(position["decided_by_a"]),
        _names(position["decided_by_b"]),
    )  # fmt: skip


def _bits(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"


def _names(stages: list[str]) -> str:
    return escape_controls(", ".join(stages)) or "no stage alone"


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return the totals over positions."""
    measured = summary["measured"]
    share = f" ({summary['parted'] / measured:.1%})" if measured else ""
    rows = [("places", f"{summary['places']}, {summary['parted']} parted{share}")]
    if measured:
        rows.append(("TV", f"mean {probability(summary['tv_mean'])}, max {probability(summary['tv_max'])}"))
        for name, key in (("A|B", "ab"), ("B|A", "ba")):  # the mean is over the finite values
            mean, infinite = summary[f"kl_{key}_mean"], summary[f"infinite_{key}"]
            finite = measured - infinite
            shown = "" if mean is None else f"mean {mean:.3g} bits over {counted(finite, 'place')}"
            kinds = filter(None, [shown, f"infinite at {infinite}" if infinite else ""])
            rows.append((f"KL {name}", ", ".join(kinds)))
    for name in "ab":
        if decided := summary[f"decided_{name}"]:
            counts = ", ".join(f"{stage} {count}" for stage, count in decided.items())
            rows.append((f"decided {name.upper()}", f"{escape_controls(counts)} of the parted places"))
    rows += [("not measured", f"{count}, {_WHY[why]}") for why, count in summary["unmeasured"].items()]
    return table(rows)
