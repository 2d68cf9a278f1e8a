"""The rules of the house: imports go down, nothing goes round, one place prints, start-up is light."""

import os
import subprocess
import sys

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

COMMANDS = (
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
)
# Each command runs in a fork of a process that has imported the entry point alone.
STARTS = """
import os, sys
from gencli.cli.app import main
for arguments in {commands!r}:
    if os.fork():
        os.wait()
        continue
    sys.stdout = sys.stderr = open(os.devnull, "w")
    try:
        main(arguments)
    except SystemExit:
        pass
    light = not arguments or arguments[0] in ("--help", "--version")
    found = [name for name in {heavy!r} + (("typer", "rich") if light else ()) if name in sys.modules]
    if found:
        print(arguments, *found, file=sys.__stdout__, flush=True)
    os._exit(0)
"""


def test_start_up_imports_nothing_heavy():
    code = STARTS.format(commands=COMMANDS, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_completion_imports_nothing_heavy():
    asked = {"_GENCLI_COMPLETE": "complete_bash", "COMP_WORDS": "gencli run --samp", "COMP_CWORD": "2"}
    command = [sys.executable, "-X", "importtime", "-m", "gencli"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **asked})
    assert done.stdout.split() == ["--sampler"]
    assert {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}.isdisjoint(HEAVY)
