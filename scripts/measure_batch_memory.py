"""Memory of a batch's input and output at two numbers of rows, which should not differ.

    python scripts/measure_batch_memory.py [ROWS [FORMAT...]]

For each format, a process writes that many results, reads them as rows, checks all of them (ids included) and
writes them again. Printed are the rows per second of reading and the peak of resident memory above that of
the imports, in MiB. The ids take 8 bytes a row.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from gencli.batch.batch_records import Outcome, Row
from gencli.batch.batch_rows import RowOptions, make_rows, row_jobs, survey
from gencli.batch.batch_sources import open_input
from gencli.batch.output_formats import plan_output
from gencli.config.settings import FLAG, resolve

FORMATS = ("jsonl", "json", "csv", "parquet", "txt", "jsonl.gz", "jsonl.zst")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_input(path: Path, num_rows: int) -> None:
    if path.suffix == ".parquet" or "jsonl" in path.name:
        with plan_output(str(path)).open() as writer:
            for index in range(num_rows):
                writer.write(Outcome(index, str(index), {"text": f"Prompt number {index} of many."}))
        return
    head, line, tail = {
        ".json": ("[", '%s{"id": "%d", "text": "Prompt number %d of many."}', "]"),
        ".csv": ("id,text\n", '%s%d,"Prompt number %d of many."\n', ""),
        ".txt": ("", "%s%d Prompt number %d of many.\n", ""),
    }[path.suffix]
    with path.open("w") as file:
        file.write(head)
        for index in range(num_rows):
            file.write(line % ("," if index and path.suffix == ".json" else "", index, index))
        file.write(tail)


def measure(path: Path, num_rows: int) -> tuple[float, float]:
    """Return rows per second, and the peak memory in MiB above the start."""
    is_text = path.suffix == ".txt"
    options = RowOptions(prompt_column="prompt" if is_text else "text", id_column=None if is_text else "id")
    jobs, records = row_jobs(resolve((FLAG, {"seed": 1}))), open_input([str(path)])
    list(zip(make_rows(records, options, jobs), range(10), strict=False))  # imports what it needs

    def rows() -> Iterator[Row]:
        return make_rows(records, options, jobs)

    before, start = peak(), time.monotonic()
    found = survey(rows)
    assert (found.num_rows, found.num_faults) == (num_rows, 0)
    seconds = time.monotonic() - start
    with plan_output(str(path.with_name("out.jsonl"))).open() as writer:
        for row in rows():
            writer.write(Outcome(row.record.index, row.id, {"text": row.prompt, "finish_reason": "eos"}))
    return num_rows / seconds, peak() - before


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"{'format':<10} {'rows':>9} {'rows/s':>9} {'MiB':>7}")
    for name in sys.argv[2:] or FORMATS:
        for num_rows in (most // 10, most):
            with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1) as pool:
                path = Path(folder) / f"rows.{name}"
                pool.apply(write_input, (path, num_rows))
                with get_context("spawn").Pool(1) as fresh:
                    speed, size = fresh.apply(measure, (path, num_rows))
            print(f"{name:<10} {num_rows:>9} {speed:>9.0f} {size:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
