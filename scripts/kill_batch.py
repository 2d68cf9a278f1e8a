"""Kill `gencli batch` repeatedly, resume it, and compare: `python scripts/kill_batch.py --kills 60`.

Each run is a process that SIGKILL ends at a random moment, or at a moment that chance rarely hits, such as in
the middle of a write. It is resumed with --resume until it is complete. The output has to be byte for byte
that of an uninterrupted run; with --trace the trace as well, in the order of its lines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from gencli.batch import journal
from gencli.batch import output_formats as beside
from gencli.batch import row_engines as local
from gencli.cli.app import main

_write, _load, _replace = os.write, local.load_model, os.replace
_outcomes, _remove = journal.Journal.outcomes, journal.Journal.remove
_LETTERS = "97,98,99,100,101,102,32,44"


def die() -> None:
    """End this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


_JOURNAL, _TRACE = (b'"row"', b'"gencli_journal"'), (b'"kind"',)


def _in_write(at: int, share: float, marks: Sequence[bytes] = _JOURNAL) -> None:
    """Die in write number `at` of those with one of the marks, after this share of its bytes."""
    count = 0

    def write(handle: int, data: bytes) -> int:
        nonlocal count
        if any(mark in data[:200] for mark in marks):
            count += 1
            if count == at:
                _write(handle, data[: int(share * len(data))])
                die()
        return _write(handle, data)

    os.write = write


def _in_load(chance: random.Random) -> None:
    is_before = chance.random() < 0.5

    def load(*arguments, **options):
        loaded = None if is_before else _load(*arguments, **options)
        die()
        return loaded

    local.load_model = load


def _in_rename(*, is_done: bool) -> None:
    def replace(source, target):
        if is_done:
            _replace(source, target)
        die()

    beside.os.replace = replace


def _in_output(chance: random.Random, rows: int) -> None:
    at = chance.randrange(rows)

    def outcomes(self, **options):
        for number, outcome in enumerate(_outcomes(self, **options)):
            if number == at:
                die()
            yield outcome

    journal.Journal.outcomes = outcomes


def _in_removal() -> None:
    def remove(self):
        _remove(self)
        die()

    journal.Journal.remove = remove


PLACES: dict[str, Callable[[random.Random, int], None]] = {
    "any moment": lambda chance, rows: None,  # from outside
    "journal: header torn": lambda chance, rows: _in_write(1, chance.random()),
    "journal: row torn": lambda chance, rows: _in_write(chance.randrange(1, 2 + rows // 3), chance.random()),
    "journal: row not begun": lambda chance, rows: _in_write(chance.randrange(2, 2 + rows // 3), 0.0),
    "journal: row just written": lambda chance, rows: _in_write(chance.randrange(2, 2 + rows // 3), 1.0),
    "model load": lambda chance, rows: _in_load(chance),
    "output half written": _in_output,
    "before the rename": lambda chance, rows: _in_rename(is_done=False),
    "after the rename": lambda chance, rows: _in_rename(is_done=True),
    "journal removed": lambda chance, rows: _in_removal(),
}
OF_TRACES: dict[str, Callable[[random.Random, int], None]] = {
    "trace: row torn": lambda chance, rows: _in_write(
        chance.randrange(1, 1 + rows // 3), chance.random(), _TRACE
    ),
    "trace: row just written": lambda chance, rows: _in_write(
        chance.randrange(1, 1 + rows // 3), 1.0, _TRACE
    ),
}


def run(
    arguments: Sequence[str],
    log: Path,
    prepare: Callable[[], None] = lambda: None,
    seconds: float | None = None,
) -> bool:
    """Run in a child process that is killed after some seconds; return whether it completed."""
    child = os.fork()
    if child == 0:
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        prepare()
        os._exit(main(arguments))
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"A run ended with {os.WEXITSTATUS(status)}:\n{log.read_text()}")
    return True


def write_input(path: Path, rows: int, chance: random.Random) -> None:
    """Write prompts of many lengths, some with their own options."""
    with path.open("w") as file:
        for number in range(rows):
            row = {"prompt": f"Row {number} " + "word " * chance.randrange(12)}
            own = [
                {},
                {"max_tokens": chance.randrange(1, 24)},
                {"temperature": 0.5, "seed": number},
                {"n": 2},
            ]
            file.write(json.dumps({**row, **own[number % 4]}) + "\n")


def harness(
    kills: int, rows: int, model: str, seed: int, form: str, folder: Path, *, is_traced: bool = False
) -> Counter[str]:
    """Run until the number of kills is reached. Return counts by position, and unexpected results."""
    ways = {**PLACES, **(OF_TRACES if is_traced else {})}
    chance, found = random.Random(seed), Counter()
    suffix = "" if form == "texts" else f".{form}"
    source, reference = folder / "input.jsonl", folder / f"reference{suffix}"
    write_input(source, rows, chance)
    options = ["--model", model, "--seed", "5", "--max-tokens", "16", "--no-timings", "--allow-ids", _LETTERS]
    options += ["--format", form]
    base = ["batch", str(source), *options, "-q"]
    start, log = time.monotonic(), folder / "said.txt"
    run([*base, *_places(reference, is_traced)], log)
    length, wanted = time.monotonic() - start, content(reference)
    while sum(found[place] for place in ways) < kills:
        output = folder / f"victim-{found['batches']}{suffix}"
        is_done = False
        while not is_done:
            is_enough = sum(found[place] for place in ways) >= kills
            place = min(ways, key=lambda name: (found[name], chance.random()))
            seconds = chance.uniform(0, length) if place == "any moment" and not is_enough else None
            prepare = (lambda: None) if is_enough else (lambda name=place: ways[name](chance, rows))
            chance.random()  # the child's draws are not the parent's
            is_done = run([*base, *_places(output, is_traced), "--resume"], log, prepare, seconds)
            found[place] += not is_done
        found["batches"] += 1
        compare(output, wanted, found)
        if is_traced:
            found["traces equal"] += traced(output) == traced(reference)
    return found


def _places(output: Path, is_traced: bool) -> list[str]:
    return ["-o", str(output), *(["--trace", str(_trace_of(output))] if is_traced else [])]


def _trace_of(output: Path) -> Path:
    return output.with_name(f"trace-{output.name.removeprefix('victim-')}")


def traced(output: Path) -> list[str]:
    """Return the lines of the output's trace, sorted: rows stand in the order in which they ended."""
    return sorted(_trace_of(output).read_text().splitlines())


def content(output: Path) -> dict[str, bytes]:
    """Return the content of a file, or of a folder's files, by name.

    `index.jsonl` is the file with a line for each row.
    """
    if output.is_dir():
        return {path.name: path.read_bytes() for path in output.iterdir()}
    return {"index.jsonl": output.read_bytes()}


def compare(output: Path, wanted: dict[str, bytes], found: Counter[str]) -> None:
    """Count lost, duplicate and different rows, and leftover files."""
    made = content(output)
    indexes = Counter(json.loads(line)["index"] for line in made["index.jsonl"].splitlines())
    rows = len(wanted["index.jsonl"].splitlines())
    found["lost"] += len(set(range(rows)) - set(indexes))
    found["duplicated"] += sum(count - 1 for count in indexes.values())
    found["equal"] += made == wanted
    left = [path.name for path in output.parent.iterdir() if output.stem in path.name and path != output]
    found["left over"] += len([name for name in left if not name.endswith(".lock")])


def table(found: Counter[str]) -> str:
    """Return the result as a table."""
    places = [place for place in (*PLACES, *OF_TRACES) if place in PLACES or found[place]]
    lines = [f"{place:<28}{found[place]:>6}" for place in places]
    kills = sum(found[place] for place in places)
    summary = (
        f"{kills} kills in {found['batches']} batches: lost {found['lost']}, "
        f"duplicated {found['duplicated']}, "
        f"bytes equal {found['equal']} of {found['batches']}, files left over {found['left over']}"
    )
    if "traces equal" in found:
        summary += f", traces equal {found['traces equal']}"
    return "\n".join([f"{'killed at':<28}{'times':>6}", *lines, summary])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("jsonl", "texts"), default="jsonl")
    parser.add_argument("--trace", action="store_true", help="write traces, and compare them")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of forks
    with tempfile.TemporaryDirectory() as name:
        counts = harness(
            given.kills, given.rows, given.model, given.seed, given.format, Path(name), is_traced=given.trace
        )
    print(table(counts))
    is_good = counts["equal"] == counts["batches"] and not counts["lost"] + counts["duplicated"]
    is_good &= not given.trace or counts["traces equal"] == counts["batches"]
    sys.exit(0 if is_good else 1)
