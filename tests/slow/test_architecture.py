"""The rules of the house: imports go down, nothing goes round, one place prints, start-up is light."""

import os
import subprocess
import sys

import pytest

from tests.test_architecture import ROOT

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "xgrammar",
    "llguidance",
    "jinja2",
    "starlette",
    "uvicorn",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        [],
        ["run", "--help"],
        ["--show-completion", "bash"],
        ["run", "--show-chain"],
        ["chat", "--help"],
        ["batch", "--help"],
        ["serve", "--help"],
        ["models", "list"],
        ["models", "show", "tiny"],
        ["completion", "bash"],
        ["log", "list"],
    ],
    ids=" ".join,
)
def test_start_up_imports_nothing_heavy(arguments):
    more = () if arguments and arguments[0] not in ("--help", "--version") else ("typer", "rich")
    code = f"""
import sys
from gencli.cli.app import main
try:
    main({arguments!r})
except SystemExit:
    pass
found = [name for name in {(*HEAVY, *more)!r} if name in sys.modules]
sys.exit(" ".join(found) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_completion_imports_nothing_heavy():
    asked = {"_GENCLI_COMPLETE": "complete_bash", "COMP_WORDS": "gencli run --samp", "COMP_CWORD": "2"}
    command = [sys.executable, "-X", "importtime", "-m", "gencli"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **asked})
    assert done.stdout.split() == ["--sampler"]
    assert {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}.isdisjoint(HEAVY)
