"""`-h` is one screen, `--help` is all, and `--help TOPIC` is a group."""

import shlex

import pytest

from gencli.cli.app import COMMANDS, command_of
from gencli.cli.usage import command_help, short_help
from gencli.errors import UsageError

PAGES = [page for name in COMMANDS if (page := getattr(command_of(name), "page", None))]


def test_the_short_help_of_a_command_is_one_screen_with_command_lines_that_exist():
    assert len(PAGES) > 15
    for page in PAGES:
        text = short_help(80, page=page)
        assert len(text.splitlines()) <= 50, page.name
        assert max(map(len, text.splitlines())) <= 82, page.name
        flags = {name for entry in page.options for name in "/".join(entry.names).split("/")}
        for line in page.examples:
            assert line in text, page.name
            own = [part for part in line.split("; ") if part.startswith(page.name)]
            words = shlex.split(own[0])
            assert {word for word in words if word.startswith("-")} <= flags, line


def test_a_command_shows_first_what_only_it_has():
    (sweep,) = (page for page in PAGES if page.name == "gencli sweep")
    text = command_help(80, page=sweep)
    assert text.index("Sweep:") < text.index("  --vary KEY") < text.index("Prompt:")
    assert command_help(80, page=sweep, topic="Sweep") in text
    with pytest.raises(UsageError, match="The help of gencli sweep has no group 'weather'") as caught:
        command_help(80, page=sweep, topic="weather")
    assert "sweep, prompt, presets" in caught.value.hint
