"""`gencli batch --dry-run`: faults of the input, prompts as the model gets them, memory and time."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.batch.batch_setup import Batch, Need, Preview, look, need_of
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.tables import table
from gencli.config.options.flags import with_flags
from gencli.units import clock, size

__all__ = ["preview"]


def preview(batch: Batch, sink: Sink) -> int:
    """Write the preview to stdout; return the exit code, 7 if some rows cannot run."""
    batch.survey()  # raises for duplicate ids
    found = Preview()
    for row, fault in look(batch, found):
        sink.write(f"fault: {row.record.place} (row {row.record.index}): {with_flags(fault)}\n")
    for shown in found.shown:
        head = f"{shown.row.id} ({shown.row.record.place}, {shown.tokens} tokens)"
        sink.write(f"==> {head} <==\n{shown.text}\n\n")
    sink.write(table(_lines(found, need_of(batch, found), batch)))
    return 7 if found.faults else 0


def _lines(found: Preview, need: Need | None, batch: Batch) -> Iterator[tuple[str, str]]:
    yield "rows", f"{found.num_rows:,}, {found.faults:,} of them faulty"
    good = found.num_rows - found.faults
    mean = found.prompt_tokens / good if good else 0.0
    yield "prompts", f"{found.prompt_tokens:,} tokens, {mean:.1f} on average, {found.shortest} at least"
    yield "outputs", f"{found.samples:,} texts of {found.output_tokens:,} tokens at most"
    yield "longest", f"{found.longest:,} tokens, prompt and output"
    yield "output", f"{batch.output.path or 'stdout'}, {batch.output.format.name}"
    if need is None:
        return
    kv = need.capacity.kv_bytes
    parts = [f"{size(need.capacity.weights)} weights"]
    parts += [f"{size(weights)} weights of {name}" for name, weights in need.capacity.beside]
    parts += [f"{size(kv * need.batch)} keys and values"] if kv is not None else []
    parts += [f"{size(need.process)} Python and PyTorch"] if need.process is not None else []
    free = f"; {size(need.capacity.free)} are free" if need.capacity.free is not None else ""
    yield "memory", f"{' + '.join(parts)} ({need.batch} samples side by side){free}"
    yield "time", f"roughly {clock(need.seconds)}, if every text is as long as it may be"
