"""Apply the mutants of mutants.toml, one at a time, in a copy of the working tree, and run their tests.

    python scripts/mutants.py --check                 each `old` occurs once, and each `new` compiles
    python scripts/mutants.py [NAME ...]              are these mutants killed? all, without names
    python scripts/mutants.py --room engine           the mutants of a room
    python scripts/mutants.py --tests tests/engine    by these tests instead of those listed
    python scripts/mutants.py --record                write the tests that failed into mutants.toml
    python scripts/mutants.py --markdown              a table

The copy without a mutant has to pass first. Fast tests run before slow ones. Exit status 1: a mutant
survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutants.toml"
COPIED = "gencli processors tests configs docs examples scripts pyproject.toml README.md".split()
COPIED += "CHANGELOG.md LICENSE Makefile constraints.txt".split()  # tests read some of them
KEYS = "name room what old new tests killed_by".split()
LIMIT = 300  # seconds of one run of pytest
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*| - .*)?$", re.MULTILINE)

Mutant = dict[str, Any]


class Verdict(NamedTuple):
    """Result of a run of pytest: killed, survived, time-out or broken, and the failed tests."""

    status: str
    tests: list[str]
    output: str = ""


def read() -> list[Mutant]:
    """Return the entries of mutants.toml."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]


def write(mutants: Iterable[Mutant]) -> None:
    """Write mutants.toml again; the comment at its top is kept."""
    head = LIST.read_text(encoding="utf-8").partition("[[mutant]]")[0]
    entries = (
        "\n".join(["[[mutant]]", *(f"{key} = {_toml(entry[key])}" for key in KEYS)]) for entry in mutants
    )
    LIST.write_text(head + "\n\n".join(entries) + "\n", encoding="utf-8")


def record(name: str, tests: list[str]) -> None:
    """Write the tests that kill a mutant; the other entries may have changed since they were read."""
    write([entry | {"killed_by": tests} if entry["name"] == name else entry for entry in read()])


def _toml(value: str | list[str]) -> str:
    if isinstance(value, list):
        return "[" + "".join(f"\n  {_toml(item)}," for item in value) + ("\n]" if value else "]")
    if "\n" not in value and not {'"', "\\"} & set(value):
        return f'"{value}"'
    return f"'''\n{value}'''" if "\n" in value else f"'''{value}'''"


def target(mutant: Mutant, root: Path) -> Path:
    """Return the file that contains `old`; ValueError unless it occurs exactly once."""
    files = [path for room in ("gencli", "processors") for path in sorted((root / room).rglob("*.py"))]
    counts = {path: path.read_text(encoding="utf-8").count(mutant["old"]) for path in files}
    if (total := sum(counts.values())) != 1:
        raise ValueError(f"{mutant['name']}: `old` occurs {total} times")
    return next(path for path, count in counts.items() if count)


def mutated(mutant: Mutant, path: Path) -> str:
    """Return the text of the file with the mutant; SyntaxError if Python cannot compile it."""
    text = path.read_text(encoding="utf-8").replace(mutant["old"], mutant["new"])
    compile(text, str(path), "exec")
    return text


def copy(folder: Path) -> None:
    """Copy the working tree; what is imported has to be the copy, not the installed package."""
    for name in COPIED:
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, folder / name)
    for package in ("gencli", "processors"):
        command = [sys.executable, "-c", f"import {package}; print({package}.__file__)"]
        done = subprocess.run(
            command, cwd=folder, env=_env(folder), capture_output=True, text=True, check=True
        )
        assert Path(done.stdout.strip()).is_relative_to(folder), done.stdout


def _env(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(folder)}


def pytest(folder: Path, tests: Iterable[str], *options: str, seconds: float = LIMIT) -> Verdict:
    """Run tests in the copy for at most `seconds`."""
    command = [sys.executable, *"-m pytest -q -p no:cacheprovider --tb=no -rfE".split(), *options, *tests]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=folder, env=_env(folder), start_new_session=True, **pipes)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verdict("time-out", [])
    names = {0: "survived", 1: "killed", 5: "survived"}  # 5: no test was selected
    return Verdict(
        names.get(process.returncode, "broken"), list(dict.fromkeys(FAILED.findall(output))), output
    )


def try_mutant(mutant: Mutant, folder: Path, tests: list[str], most: int) -> Verdict:
    """Run the tests with the mutant, the quick ones first, until `most` fail."""
    path = target(mutant, folder)
    text, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(mutated(mutant, path), encoding="utf-8")
    try:
        fast_first = sorted(tests, key=lambda test: test.startswith("tests/slow/"))
        return pytest(folder, fast_first, f"--maxfail={most}")
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def check(mutants: Iterable[Mutant]) -> int:
    """Print what is wrong with the list; return the number of such mutants."""
    wrong = 0
    for mutant in mutants:
        try:
            mutated(mutant, target(mutant, ROOT))
        except (ValueError, SyntaxError) as error:
            print(f"{mutant['name']}: {error}")
            wrong += 1
    return wrong


def markdown(mutants: Iterable[Mutant]) -> str:
    """Return the table of the page."""
    head = "| mutant | room | what is changed | killed by |\n|---|---|---|---|\n"
    rows = (
        f"| `{mutant['name']}` | {mutant['room']} | {mutant['what']} | "
        + "<br>".join(f"`{test.removeprefix('tests/')}`" for test in mutant["killed_by"])
        + " |\n"
        for mutant in mutants
    )
    return head + "".join(rows)


def main() -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--room")
    parser.add_argument("--tests", nargs="+", metavar="PATH")
    for flag in ("--check", "--record", "--markdown"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args()
    mutants = read()
    if unknown := set(asked.names) - {mutant["name"] for mutant in mutants}:
        parser.error(f"no mutant is named {', '.join(sorted(unknown))}")
    chosen = [
        mutant
        for mutant in mutants
        if asked.room in (None, mutant["room"]) and (not asked.names or mutant["name"] in asked.names)
    ]
    if asked.markdown:
        print(markdown(chosen), end="")
        return 0
    if wrong := check(chosen):
        return min(wrong, 1)
    if asked.check:
        print(f"{len(chosen)} mutants apply")
        return 0
    return run(chosen, asked.tests, asked.record)


def run(chosen: list[Mutant], tests: list[str] | None, is_recorded: bool) -> int:
    """Try the chosen mutants and print a line for each; return 1 if one survives."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name).resolve()
        copy(folder)
        plain = dict.fromkeys(test for mutant in chosen for test in tests or mutant["tests"])
        if (verdict := pytest(folder, plain, "-x", seconds=LIMIT * len(plain))).status != "survived":
            print(verdict.output, f"without a mutant: {verdict.status}", *verdict.tests, sep="\n")
            return 1
        for mutant in chosen:
            begin = time.monotonic()
            verdict = try_mutant(mutant, folder, tests or mutant["tests"], 3 if is_recorded else 1)
            seconds = f"{time.monotonic() - begin:4.0f} s"
            print(
                f"{mutant['name']:32} {mutant['room']:12} {verdict.status:9} {seconds}",
                *verdict.tests,
                flush=True,
            )
            if verdict.status == "broken":
                print(verdict.output)
            survivors += verdict.status != "killed"
            if is_recorded:
                record(mutant["name"], verdict.tests)
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
