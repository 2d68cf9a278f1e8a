"""`--show-chain`: every stage with its values and where they came from, without loading a model."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.cli.flags import with_flags
from gencli.cli.terminal.tables import table
from gencli.config.job import Job
from gencli.json_text import to_json
from gencli.structured.output_spec import OutputSpec

__all__ = ["chain_rows", "chain_table"]

_WIDTH = 200  # of a value
_COLUMNS = ("phase", "stage", "value", "origin")


def chain_table(job: Job) -> str:
    """Lines of phase, stage, value and origin, in the order in which stages run."""
    return table([_COLUMNS, *_lines(job)])


def chain_rows(job: Job) -> list[dict[str, str]]:
    """Each line of the table as an object."""
    return [dict(zip(_COLUMNS, row, strict=True)) for row in _lines(job)]


def _described(structure: OutputSpec) -> str:
    """What the output has to be and what compiles that, without the text of it."""
    backend = structure.plan.variants[0].constraint.backend
    after = f", after {to_json(structure.after)}" if structure.after else ""
    return f"{structure.kind} {structure.source}".strip() + f", {backend}{after}"


def _short(value: object) -> str:
    """A value in a table; a grammar's text may be long."""
    text = to_json(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 4] + '..."'


def _lines(job: Job) -> Iterator[tuple[str, str, str, str]]:
    running = {name for name, _ in job.chain}
    yield "constrain", "tail", "ids that the tokenizer lacks", "model"
    for name, params in job.assembly.chain:
        phase = job.registry.phase(name).name.lower()
        why = "" if name in running else "  (off)" if params.is_off() else "  (not run: greedy)"
        said = job.assembly.of_stage(name)
        for entry in said:
            yield (
                phase,
                name,
                f"{entry.field}={_short(entry.value)}{why}",
                with_flags(f"{entry.origin} {entry.said}"),
            )
        if name == "grammar" and job.structure is not None:
            yield phase, name, _described(job.structure), with_flags(job.structure.origin)
        elif not said:
            yield phase, name, f"defaults{why}", "flag --stage"
    if job.is_greedy and job.draw != "greedy":
        yield "draw", "greedy", "", "temperature 0"
    else:
        yield "draw", job.method, "", with_flags(job.draw_origin)
