"""`--show-chain`: every stage with its values and where they came from, without loading a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gencli.cli.jsontext import to_json
from gencli.job import Job

__all__ = ["chain_json", "chain_rows", "chain_table", "table"]

_COLUMNS = ("phase", "stage", "value", "origin")


def chain_table(job: Job) -> str:
    """Lines of phase, stage, value and origin, in the order in which stages run."""
    return table([_COLUMNS, *_lines(job)])


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows with their columns under each other; the last column has any width."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    return "".join("  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() + "\n" for row in rows)


def chain_json(job: Job) -> str:
    """The same as a JSON array of objects."""
    return to_json(chain_rows(job), indent=2) + "\n"


def chain_rows(job: Job) -> list[dict[str, str]]:
    """Each line of the table as an object."""
    return [dict(zip(_COLUMNS, row, strict=True)) for row in _lines(job)]


def _lines(job: Job) -> Iterator[tuple[str, str, str, str]]:
    running = {name for name, _ in job.chain}
    yield "constrain", "tail", "ids that the tokenizer lacks", "model"
    for name, params in job.assembly.chain:
        phase = job.registry.phase(name).name.lower()
        why = "" if name in running else "  (off)" if params.is_off() else "  (not run: greedy)"
        said = job.assembly.of_stage(name)
        for entry in said:
            yield phase, name, f"{entry.field}={to_json(entry.value)}{why}", f"{entry.origin} {entry.said}"
        if not said:
            yield phase, name, f"defaults{why}", "flag --stage"
    if job.is_greedy and job.draw != "greedy":
        yield "draw", "greedy", "", "temperature 0"
    else:
        yield "draw", job.draw, "", job.draw_origin
