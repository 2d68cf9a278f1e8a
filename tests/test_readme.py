"""The commands of the README and of pages in docs run as they are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.refresh_readme import commands

ROOT = Path(__file__).parent.parent
COMMANDS, MORE, STRUCTURED = (
    list(commands((ROOT / page).read_text(encoding="utf-8")))
    for page in ("README.md", "docs/commands.md", "docs/structured-output.md")
)


@pytest.mark.parametrize("command", [*COMMANDS, *MORE, *STRUCTURED])
def test_the_command_runs(command):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readme_shows_the_main_ways_to_run():
    assert len(COMMANDS) >= 5
    assert sum("gencli run" in command for command in COMMANDS) >= 5
