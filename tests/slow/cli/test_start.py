"""What a run on the native decoder imports: PyTorch and small libraries, never transformers."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("transformers", "torch._dynamo", "sympy", "huggingface_hub", "accelerate")


NATIVE = [
    ["run", "--max-tokens", "2", "--log", "Hi"],
    ["run", "--chat", "--max-tokens", "2", "--format", "json", "Hi"],
    ["run", "--model", "tiny", "--draft", "tiny-draft", "--max-tokens", "4", "--top-p", "0.9", "Hi"],
    ["batch", "rows.jsonl", "-o", "out.jsonl", "--max-tokens", "2"],
    ["batch", "rows.jsonl", "--dry-run"],
    ["tokenize", "Hi"],
]


EACH_IN_A_FORK = f"""
import os, sys, torch
from gencli.cli.app import main
for arguments in {NATIVE!r}:
    if os.fork() == 0:
        code = main(arguments)
        print(code, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
    print("==", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command of NATIVE writes to stderr in a process that has imported torch and no more."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "rows.jsonl").write_text(json.dumps({"prompt": "Hi"}) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_FORK],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"XDG_DATA_HOME": str(folder)},
    )
    return done.stderr.split("==\n")[:-1]


def test_the_native_path_does_without_transformers(said):
    for number in range(len(NATIVE)):
        assert said[number].splitlines()[-1] == "0", said[number]
