"""Waits and drawings on a terminal: they replace each other, make room for text, and leave nothing."""

import os
import re
import subprocess
import sys

import pytest

from gencli.cli.progress_bars import Drawing, LoadBar, run_bar
from gencli.cli.result_writers import LiveThinking
from gencli.cli.stderr import Stderr
from gencli.core.events import Token
from gencli.results.run_results import ProgressRate


class Screen:
    """A terminal of endless height that folds lines when it is made narrower, as tmux and most others do."""

    def __init__(self):
        self.lines, self.row, self.column, self.is_hidden = [""], 0, 0, False
        self.width = 40

    def write(self, text):
        for move, final, plain in re.findall(r"\x1b\[([?\d;]*)([A-Za-z])|([^\x1b])", text):
            self._print(plain) if plain else self._obey(move, final)

    def flush(self):
        pass

    def isatty(self):
        return True

    def narrow(self, width):
        self.width = width
        above = [self._folds(line, width) for line in self.lines]
        self.row = sum(map(len, above[: self.row]))
        self.lines = [part for parts in above for part in parts]

    def _folds(self, line, width):
        return [line[start : start + width] for start in range(0, len(line), width)] or [""]

    def _print(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            self.lines += [""] * (self.row == len(self.lines))
        else:
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column = min(self.column + 1, self.width - 1)  # nothing is wrapped by the programs tested

    def _obey(self, move, final):
        if final == "A":
            self.row -= int(move or 1)
        elif final == "K":
            self.lines[self.row] = ""
        elif final == "J":
            self.lines[self.row :] = [self.lines[self.row][: self.column]]
        elif move == "?25":
            self.is_hidden = final == "l"

    @property
    def text(self):
        return "\n".join(self.lines).rstrip()


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


def test_a_drawing_replaces_the_one_before_and_leaves_nothing(screen):
    screen.write("text\r\n")
    with Drawing(screen) as drawing:
        drawing.show("one", "two", "three")
        assert screen.text == "text\none\ntwo\nthree"
        assert screen.is_hidden
        drawing.show("four")
        assert screen.text == "text\nfour"
    assert (screen.text, screen.row, screen.is_hidden) == ("text", 1, False)

    screen = Screen()
    Drawing(screen).show(*(f"{number}" * 99 for number in range(9)))
    assert screen.text.splitlines() == [f"{number}" * 40 for number in range(5)]


def test_text_takes_the_place_of_an_erased_drawing(screen):
    drawing = Drawing(screen)
    drawing.show("one", "two")
    drawing.erase()
    screen.write("text\r\n")
    drawing.erase()  # there is none
    drawing.show("three")
    assert screen.text == "text\nthree"


def test_lines_that_the_terminal_folded_are_gone_with_the_next_drawing(screen):
    for width in [39, 20, 7]:
        screen = Screen()
        screen.write("text\r\n")
        drawing = Drawing(screen)
        drawing.show("a" * 40, "b" * 40, "c" * 40)
        screen.narrow(width)
        assert len(screen.lines) > 5, width
        drawing.show("a" * 40, "b" * 40)
        assert screen.text.splitlines() == ["text", "a" * width, "b" * width], width


def test_bars_have_names_rates_and_times(screen, monkeypatch):
    Drawing(screen).show(run_bar(ProgressRate(3, 10, 41.26, 3725.4)))
    assert re.fullmatch(r"3 of 10 done [^ ]* 41.3 tok/s, 1:02:05 left", screen.text.strip())
    Drawing(screen).show(run_bar(ProgressRate(0, 10, None, None)))
    assert screen.text.startswith("0 of 10 done")

    monkeypatch.setenv("COLUMNS", "80")
    screen.width = 80
    bar = LoadBar("[red]name", Drawing(screen))
    for done in (0, 1_000_000_000, 2_000_000_000):
        bar(done, 2_000_000_000)
    assert screen.text.startswith("Loading [red]name")
    assert "2.0/2.0 GB" in screen.text


def test_off_a_terminal_only_large_weights_are_spoken_of_in_one_line(capsys):
    for total, is_quiet, said in [
        (2 * 10**9, False, "Loading big, 2.0 GB ...\n"),
        (10**6, False, ""),
        (2 * 10**9, True, ""),
    ]:
        with Stderr(is_quiet=is_quiet).loading("big") as on_bytes:
            for done in (0, total // 2, total):
                on_bytes(done, total)
        assert capsys.readouterr() == ("", said), total


def test_live_thinking_ends_its_line_where_the_marker_ends_it(capsys):
    shown = LiveThinking("</t>")
    for text in ("\n", "so ", "it </", "t>", "{}"):
        shown.add(Token("1", 0, text, ()))
    assert capsys.readouterr() == ("", "[thinking] so it </t>\n")


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
