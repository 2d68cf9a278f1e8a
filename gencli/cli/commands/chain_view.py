"""`--show-chain`: every stage with its values and their origins, without loading a model."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.cli.terminal.tables import table
from gencli.config.job import Job
from gencli.config.options.flags import with_flags
from gencli.json_text import to_json
from gencli.structured.output_spec import OutputSpec
from processors.catalog.scale import VaryingParams

__all__ = ["chain_rows", "chain_table"]

_WIDTH = 200  # characters of a value
_COLUMNS = ("phase", "stage", "value", "origin")


def chain_table(job: Job) -> str:
    """Return a table of phase, stage, value and origin, in the order in which the stages run."""
    return table([_COLUMNS, *_rows(job)])


def chain_rows(job: Job) -> list[dict[str, str]]:
    """Return each row of the table as a mapping of its columns."""
    return [dict(zip(_COLUMNS, row, strict=True)) for row in _rows(job)]


def _output_text(structure: OutputSpec) -> str:
    """Return the kind of the output, its source and the back end, without the grammar's text."""
    backend = structure.plan.variants[0].constraint.backend
    after = f", after {to_json(structure.after)}" if structure.after else ""
    return f"{structure.kind} {structure.source}".strip() + f", {backend}{after}"


def _short(value: object) -> str:
    """Return a value as JSON of at most _WIDTH characters; a grammar's text may be longer."""
    text = to_json(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 4] + '..."'


def _rows(job: Job) -> Iterator[tuple[str, str, str, str]]:
    active = {name for name, _ in job.chain}
    varying = next((name for name, params in job.chain if isinstance(params, VaryingParams)), "")
    idle = "  (not run: greedy)" if job.is_greedy else f"  (a value of {varying})"
    yield "constrain", "tail", "ids that the tokenizer lacks", "model"
    for name, params in job.assembly.chain:
        phase = job.registry.phase(name).name.lower()
        state = "" if name in active else "  (off)" if params.is_off() else idle
        entries = job.assembly.of_entry(name, params)
        if params.when is not None:
            state = f" when {to_json(params.when.to_mapping())}{state}"
        for entry in entries:
            origin = with_flags(entry.where)
            yield phase, name, f"{entry.field}={_short(entry.value)}{state}", origin
        if name == "grammar" and job.structure is not None:
            yield phase, name, _output_text(job.structure), with_flags(job.structure.origin)
        elif not entries:
            yield phase, name, f"defaults{state}", "flag --stage"
    if job.is_greedy and job.draw != "greedy":
        yield "draw", "greedy", "", "temperature 0"
    else:
        yield "draw", job.method, "", with_flags(job.draw_origin)
