"""Every example runs as it stands, and stays short."""

import subprocess
from pathlib import Path

import pytest

from tests.helpers.quick import quick_path, quick_python

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"serve_ray.py"}  # tests/server/test_ray.py runs it
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").iterdir()
    if path.suffix in (".py", ".sh") and path.name not in ELSEWHERE
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(path):
    command = [quick_python() if path.suffix == ".py" else "sh", path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quick_path(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert len(path.read_text().splitlines()) < 60


def test_there_are_examples_of_both_kinds():
    assert len(EXAMPLES) >= 8
    assert {path.suffix for path in EXAMPLES} == {".py", ".sh"}
