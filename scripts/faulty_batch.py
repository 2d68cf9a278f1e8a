"""Run a batch with 12 kinds of faulty lines among good ones: `python scripts/faulty_batch.py --rows 5000`.

Each faulty line has to get its error record; each good line the same text as without the faulty lines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from gencli.cli.app import main

# A line, the type of its error, and a part of the message.
FAULTS: dict[str, tuple[bytes, str, str]] = {
    "no JSON": (b'{"prompt": "a"', "InputError", "not JSON"),
    "no object": (b'["a"]', "InputError", ""),
    "not UTF-8": (b'{"prompt": "\xff"}', "InputError", "UTF-8"),
    "a key twice": (b'{"prompt": "a", "prompt": "b"}', "InputError", "twice"),
    "no prompt": (b'{"seed": 1}', "UsageError", "neither prompt nor messages"),
    "an empty prompt": (b'{"prompt": ""}', "UsageError", "empty"),
    "a prompt that is no text": (b'{"prompt": 5}', "UsageError", "has to be a text"),
    "an unknown option": (b'{"prompt": "a", "temprature": 1}', "UsageError", "Did you mean 'temperature'"),
    "a value out of bounds": (b'{"prompt": "a", "top_p": 2}', "UsageError", "top_p"),
    "options that contradict": (
        b'{"prompt": "a", "n": 2, "temperature": 0}', "UsageError", "equal texts"
    ),
    "a prompt that is too long": (
        b'{"prompt": "' + b"a" * 3000 + b'"}', "UsageError", "takes 1024 with the output"
    ),
    "nothing left to choose": (
        b'{"prompt": "a", "allow_ids": [97], "suppress_ids": [97]}', "EmptySupport", ""
    ),
}  # fmt: skip


def write_input(path: Path, rows: int, faults: int) -> dict[int, str]:
    """Write good lines, and faulty ones at equal distances. Return the kind of each faulty line."""
    step, kinds, where = rows // faults, list(FAULTS), {}
    with path.open("wb") as file:
        for index in range(rows):
            if index % step == step // 2 and len(where) < faults:
                kind = kinds[len(where) % len(kinds)]
                where[index] = kind
                file.write(FAULTS[kind][0] + b"\n")
            else:
                row = {"prompt": f"Row {index}", "max_tokens": 1 + index % 12, "seed": index}
                file.write(json.dumps(row).encode() + b"\n")
    return where


def check(folder: Path, rows: int, faults: int) -> list[str]:
    """Run with and without the faulty lines, and return the deviations."""
    source, good = folder / "in.jsonl", folder / "good.jsonl"
    where = write_input(source, rows, faults)
    lines = source.read_bytes().splitlines(keepends=True)
    good.write_bytes(b"".join(line for index, line in enumerate(lines) if index not in where))
    code, results = _run(source, max_batch=16)
    wrong = [] if code == 7 else [f"The exit code is {code}."]
    if [result["index"] for result in results] != list(range(rows)):
        wrong.append("Rows are lost, or not in order.")
    texts = [result["text"] for result in results if result["index"] not in where]
    if texts != [result["text"] for result in _run(good, max_batch=5)[1]]:
        wrong.append("Texts are not what they are without the faulty lines.")
    return wrong + [fault for result in results if (fault := _judged(result, where))]


def _run(source: Path, *, max_batch: int) -> tuple[int, list[dict[str, Any]]]:
    output = source.with_suffix(".out.jsonl")
    options = ["--model", "fake", "--allow-ids", "97,98,99,100,32", "--no-timings", "-q"]
    code = main(["batch", str(source), "-o", str(output), "--max-batch", str(max_batch), *options])
    return code, [json.loads(line) for line in output.read_text().splitlines()]


def _judged(result: dict[str, Any], where: dict[int, str]) -> str:
    """Return what is wrong with the error of a row, or with its absence."""
    index, error = result["index"], result["error"]
    if index not in where:
        return f"Row {index} is good and failed: {error}" if error else ""
    _, kind, part = FAULTS[where[index]]
    is_right = error and error["type"] == kind and part in error["message"]
    return "" if is_right else f"Row {index} ({where[index]}) has: {error}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--faults", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        found = check(Path(name), given.rows, given.faults)
    good = given.rows - given.faults
    print(
        "\n".join(found) or f"{good:,} rows have texts, {given.faults} of {len(FAULTS)} kinds their errors."
    )
    sys.exit(bool(found))
