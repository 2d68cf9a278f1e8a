"""Runs `gencli batch` in this process, on the fake model kept to letters."""

import io
import json
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from gencli.cli.app import main

FAKE = ("--model", "fake", "--allow-ids", "97,98,99,100,101,32", "--seed", "5", "--max-tokens", "12")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Bench:
    """A folder with an input, and what a batch makes of it."""

    def __init__(self, folder, capfd, monkeypatch):
        self._numbers = count()
        self.folder, self._capfd, self._monkeypatch = folder, capfd, monkeypatch
        self.input, self.output = folder / "in.jsonl", folder / "out.jsonl"
        self.journal = folder / "out.jsonl.journal"

    def fresh(self):
        """A bench in a folder of its own."""
        folder = self.folder / f"fresh{next(self._numbers)}"
        folder.mkdir()
        return Bench(folder, self._capfd, self._monkeypatch)

    def write(self, rows):
        """Rows as JSON Lines; a text is a line as it stands."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        self.input.write_text("".join(line + "\n" for line in lines))

    def call(self, *arguments, stdin=b""):
        """Call `gencli batch` with these arguments and no others."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["batch", *(str(argument) for argument in arguments)])
        return Result(code, *self._capfd.readouterr())

    def run(self, *arguments):
        """The input to the output on the fake model."""
        return self.call(self.input, "-o", self.output, *FAKE, *arguments)

    def refused(self, *arguments, rows=None):
        """What is said of a run that ends with code 2."""
        if rows is not None:
            self.write(rows)
        done = self.run(*arguments)
        assert done.code == 2, done
        return done.err

    @property
    def results(self):
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    @property
    def files(self):
        return sorted(path.name for path in Path(self.folder).iterdir() if path != self.input)


@pytest.fixture
def bench(tmp_path, capfd, monkeypatch):
    return Bench(tmp_path, capfd, monkeypatch)
