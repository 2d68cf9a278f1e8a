"""Columns line up on a terminal, whatever the characters."""

import pytest

from gencli.cli.render import table


def test_a_wide_character_takes_two_cells():
    assert table([("a", "1"), ("港口", "2"), ("e\u0301", "3")]) == "a     1\n港口  2\ne\u0301     3\n"


ROWS = [("name", "what it is for", "origin"), ("top_p", "cut the tail of the distribution", "preset mine:3")]


@pytest.mark.parametrize("width", [30, 36, 44, 60, 200])
def test_a_table_fits_its_terminal_and_breaks_no_word(width):
    lines = table(ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(row) for row in ROWS).split()
    assert sorted(" ".join(lines).split()) == sorted(words)
    assert (lines == table(ROWS, 0).splitlines()) is (width >= 60)


def test_columns_without_room_follow_below_beside_the_first():
    rows = [("stage", *"abcdef"), ("top_k", *(str(number) * 6 for number in range(6)))]
    assert table(rows, 30).splitlines() == [
        "stage  a       b       c",
        "top_k  000000  111111  222222",
        "",
        "stage  d       e       f",
        "top_k  333333  444444  555555",
    ]
