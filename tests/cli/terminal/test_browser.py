"""The browser is asked to open an address; without one that is said."""

import os
import subprocess
import sys


def opened(**environ):
    """Whether an address is opened in a process with these variables, and no programs but those."""
    code = "from gencli.cli.stderr import open_browser as f; print(f('http://localhost/'))"
    given = {**os.environ, "PATH": "/nowhere", "TERM": "xterm", **environ}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_only_the_variable_names_a_browser_of_the_terminal(tmp_path):
    for name in ("w3m", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    display = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    assert opened(**display) == "False"
    assert opened(**display, PATH=str(tmp_path)) == "False"
    assert opened(**display, BROWSER=str(tmp_path / "mine")) == "True"
