"""Every example runs as it stands, and stays short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh"))
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(path):
    command = [sys.executable if path.suffix == ".py" else "sh", path]
    env = os.environ | {"PATH": PATH}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert len(path.read_text().splitlines()) < 60


def test_there_are_examples_of_both_kinds():
    assert len(EXAMPLES) >= 8
    assert {path.suffix for path in EXAMPLES} == {".py", ".sh"}
