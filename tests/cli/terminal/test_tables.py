"""Columns line up on a terminal, whatever the characters."""

from gencli.cli.terminal.tables import table


def test_a_wide_character_takes_two_cells():
    assert table([("a", "1"), ("港口", "2"), ("e\u0301", "3")]) == "a     1\n港口  2\ne\u0301     3\n"
