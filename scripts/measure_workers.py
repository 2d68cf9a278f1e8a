"""Throughput by number of workers, and of the journal: `python scripts/measure_workers.py`.

Shards run in parallel as processes with one thread each. Tokens per second are all tokens over the time of
the slowest shard, without loading. The numbers of workers alternate, so that other load affects all of them.
Ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from gencli.batch.batch_plan import gather_settings, make_plan
from gencli.batch.batch_records import Outcome
from gencli.batch.batch_setup import prepare
from gencli.batch.journal import Journal
from gencli.batch.run_batch import Generation


def tokens_per_second(source: Path, workers: int, tokens: int) -> float:
    """Return the rate of one run of the input, shared by several processes."""
    folder, env = source.parent, os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    flags = [
        "--seed",
        "1",
        "--ignore-eos",
        "--max-tokens",
        str(tokens),
        "-q",
        "--overwrite",
        "--threads",
        "1",
    ]

    def command(part: int) -> list[str]:
        own = ["-o", f"{folder}/{part}.jsonl", "--summary", f"{folder}/{part}.json"]
        return [
            sys.executable,
            "-m",
            "gencli",
            "batch",
            str(source),
            "--shard",
            f"{part}/{workers}",
            *own,
            *flags,
        ]

    running = [subprocess.Popen(command(part), env=env) for part in range(workers)]
    if any(process.wait() for process in running):
        raise SystemExit("A shard has failed.")
    found = [json.loads((folder / f"{part}.json").read_text()) for part in range(workers)]
    return sum(one["completion_tokens"] for one in found) / max(one["seconds"] for one in found)


def journal_rates(folder: Path, rows: int, characters: int) -> tuple[float, float]:
    """Return the rows per second that a journal takes from one process, and its bytes per row."""
    result = {
        "id": "0",
        "prompt": "p" * 100,
        "text": "t" * characters,
        "finish_reason": "length",
        "error": None,
    }
    journal = Journal(folder / "journal", {})
    start = time.monotonic()
    for index in range(rows):
        journal.append(Outcome(index, str(index), result))
    seconds = time.monotonic() - start
    journal.close()
    return rows / seconds, (folder / "journal").stat().st_size / rows


def rows_read(folder: Path, rows: int) -> float:
    """Return the rows per second that are read, checked and hashed before the model loads."""
    source = folder / "many.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"The fox {n} " * 10}) + "\n" for n in range(rows)))
    plan = make_plan((str(source),), {"model": "fake"}, {})
    batch = prepare(plan, gather_settings(plan, {}), Generation())
    start = time.monotonic()
    batch.survey()
    return rows / (time.monotonic() - start)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in.jsonl"
        source.write_text("".join(json.dumps({"prompt": f"The fox {n}"}) + "\n" for n in range(given.rows)))
        for _ in range(given.rounds):
            for workers, found in rates.items():
                found.append(tokens_per_second(source, workers, given.tokens))
        speed, size = journal_rates(Path(name), 100_000, 400)
        read = rows_read(Path(name), 100_000)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for workers, found in rates.items():
        ratio = median(rate / one for rate, one in zip(found, rates[1], strict=True))
        print(f"{workers} workers: {median(found):8.0f} tok/s, {ratio:.2f} times one")
    print(f"journal: {speed:,.0f} rows/s, {size:,.0f} bytes a row; input: {read:,.0f} rows/s")


if __name__ == "__main__":
    main(sys.argv[1:])
