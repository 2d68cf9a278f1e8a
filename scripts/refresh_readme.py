"""Run the commands in a page's `console` blocks and update their outputs.

    python scripts/refresh_readme.py [README.md ...]

A line that starts with `$ ` is a shell command; a quote that it opens may close on a later line. Standard
error is left out, because it has times.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["commands", "refreshed"]

_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[str]:
    """Yield the commands of all console blocks in order."""
    for block in _BLOCK.findall(page):
        yield from _commands(block)


def refreshed(page: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the page with current outputs. By default `gencli` is that of this Python."""
    if environ is None:
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        environ = os.environ | {"PATH": os.pathsep.join(folders)}

    def current(block: re.Match[str]) -> str:
        return "".join(f"$ {command}\n{_output(command, environ)}" for command in _commands(block[0]))

    return _BLOCK.sub(current, page)


def _commands(block: str) -> Iterator[str]:
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.count("'") % 2:
                command += "\n" + next(lines)
            yield command


def _output(command: str, environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ,
        check=True,
    )
    return done.stdout if done.stdout.endswith("\n") or not done.stdout else done.stdout + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or ["README.md"]:
        file = Path(name)
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")
