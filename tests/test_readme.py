"""The commands of the README and of pages in docs run as they are written."""

import re
from pathlib import Path

from scripts.refresh_readme import commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


COMMANDS, MORE, STRUCTURED = (
    list(commands((ROOT / page).read_text(encoding="utf-8")))
    for page in ("README.md", "docs/cli.md", "docs/structured-output.md")
)


def test_the_readme_is_short_and_shows_the_five_main_commands():
    assert len(README.encode()) <= 7 * 1024
    shown = set(re.findall(r"gencli (run|chat|explain|batch|serve)\b", "\n".join([*COMMANDS, *scripts()])))
    assert shown == {"run", "chat", "explain", "batch", "serve"}


def test_the_python_of_the_readme_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], {})
    assert capsys.readouterr().out.count("\n") >= 2


def scripts():
    """Return the shell scripts of the README, in order: install, batch, server."""
    return re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
