"""Streamed words move to the next line of a terminal instead of being broken at its edge."""

import pytest

from gencli.cli.render import WordWrap, cell_width


def screen(sent, width):
    """The lines of a terminal that was sent these characters; a line's end only moves on the next one."""
    lines, column, codes = [""], 0, iter(sent)
    for char in codes:
        if char == "\n":
            lines.append("")
            column = 0
        elif char == "\r":
            column = 0
        elif char == "\x1b":
            number = ""
            while not (char := next(codes)).isalpha():
                number += char.strip("[")
            if char == "C":
                column = int(number)
            elif char == "K":
                lines[-1] = lines[-1][:column]
        else:
            if column + cell_width(char) > width:
                lines.append("")
                column = 0
            lines[-1] += char
            column += cell_width(char)
    return lines


def shown(parts, width, codes=("", "")):
    wrap = WordWrap()
    return screen("".join(wrap.feed(part, width, codes) for part in parts), width)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("codes", [("", ""), ("\x1b[1m", "\x1b[0m")])
def test_lines_break_between_words_however_the_text_arrives(size, codes):
    text = "The quick brown fox\njumps over  the lazy dog."
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert shown(parts, 10, codes) == ["The quick ", "brown fox", "jumps over", "the lazy ", "dog."]


def test_what_no_line_holds_is_left_to_the_terminal():
    assert shown(["see ", "abcdefgh", "ijkl", " end"], 8) == ["see ", "abcdefgh", "ijkl end"]
    assert shown(["abcdefghijkl"], 8) == ["abcdefgh", "ijkl"]


def test_wide_characters_break_anywhere():
    assert shown(["ab 港口港", "口c"], 6) == ["ab 港", "口港口", "c"]


def test_space_that_crosses_the_edge_begins_no_line():
    assert shown(["1234567890 ", " x"], 10) == ["1234567890", "x"]
    assert shown(["a\tb cd"], 10) == ["a\tb ", "cd"]
