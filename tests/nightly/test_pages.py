"""Pages and examples are what the commands print."""

import subprocess

import pytest

from tests.helpers.quick import quick_path, quick_python
from tests.test_pages import EXAMPLES, ROOT


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(path):
    command = [quick_python() if path.suffix == ".py" else "sh", path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quick_path(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert len(path.read_text().splitlines()) < 60
