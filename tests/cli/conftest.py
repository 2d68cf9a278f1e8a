"""Runs the command line in this process, as a shell would: arguments and stdin in, code and streams out."""

import io
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gencli.cli.app import main
from gencli.config.option_names import with_flags
from tests.helpers.quick import quick_gencli

ROOT = Path(__file__).parent.parent.parent
# The fake model, kept to letters a person can read.
LETTERS = ("--allow-ids", "97,98,99,100,101,32,10")
FAKE = ("--model", "fake", *LETTERS)


def command(*arguments):
    """What starts a process of `gencli run` on the fake model, always with the same draws."""
    return [str(quick_gencli()), "run", "--model", "fake", "--seed", "1", *arguments]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str
    words: tuple = field(default=(), compare=False)  # the command line, for messages of tests

    def __post_init__(self):
        assert self.err == with_flags(self.err), "a message for a person names an option by its key"

    def refused(self, *parts, code=2):
        """Check that the command ended with this code and wrote nothing but an error with these parts."""
        assert self.code in (code if isinstance(code, tuple) else (code,)), self
        assert self.out == "", self
        assert [part for part in parts if part not in self.err] == [], self

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def gencli(capfd, monkeypatch):
    """Call `gencli(*arguments, stdin=b"...")`."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        return Result(code, *capfd.readouterr(), arguments)

    return call


@pytest.fixture
def run(gencli):
    """Call `gencli run` on the fake model."""
    return lambda *arguments, **kwargs: gencli("run", *FAKE, *arguments, **kwargs)


@pytest.fixture
def start(spawn):
    """Start a process of `gencli run` on the fake model, as `spawn` does."""
    # Without a buffer: what it held would be lost to communicate().
    return lambda *arguments, **options: spawn("run", *FAKE, *arguments, bufsize=0, **options)
