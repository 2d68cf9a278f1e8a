"""The commands of the README and of pages in docs run as they are written."""

from pathlib import Path

from scripts.refresh_readme import commands

ROOT = Path(__file__).parent.parent


COMMANDS, MORE, STRUCTURED = (
    list(commands((ROOT / page).read_text(encoding="utf-8")))
    for page in ("README.md", "docs/commands.md", "docs/structured-output.md")
)


def test_the_readme_shows_the_main_ways_to_run():
    assert len(COMMANDS) >= 5
    assert sum("gencli run" in command for command in COMMANDS) >= 5
