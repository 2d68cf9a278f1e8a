"""The bar of a call: for who watches, from the first second on, one line."""

import io
import sys

import pytest

from gencli import LLM
from gencli.runtime.completion import Bar


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


class Broken(Screen):
    """A terminal that is gone."""

    def write(self, text):
        raise OSError


class Cell(io.StringIO):
    """What a notebook's cell has as stderr."""

    __module__ = "ipykernel.iostream"


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def drawn(monkeypatch):
    """A function: what a bar draws on a stream whose clock is at these times, each with one more result."""

    def draw(stream, *times, total=4, progress=None):
        monkeypatch.setattr(sys, "stderr", stream)
        now, done = Clock(), 0
        with Bar(total, lambda now: (done, "3 tok/s"), progress, now=now) as bar:
            for now.time in times:
                done += 1
                bar.tick()
        return stream.getvalue()

    return draw


def test_a_bar_is_drawn_from_the_first_second_on_and_its_last_line_stays(drawn):
    for stream in (Screen(), Cell()):
        lines = drawn(stream, 0.5, 1.5, 1.55, 3.0).split("\r")
        assert [line.rstrip() for line in lines] == [
            "",
            "[############............] 2 of 4, 3 tok/s",
            "[########################] 4 of 4, 3 tok/s, 0:03 taken",
            "[########################] 4 of 4, 3 tok/s, 0:03 taken",
        ]
        assert lines[-1].endswith("\n")


def test_a_short_call_and_a_pipe_have_no_bar_unless_it_is_asked_for(drawn):
    assert drawn(Screen(), 0.2, 0.9) == ""
    assert drawn(io.StringIO(), 0.5, 3.0) == ""
    assert drawn(Screen(), 0.5, 3.0, progress=False) == ""
    assert drawn(Broken(), 0.5, 3.0) == ""
    assert drawn(io.StringIO(), 0.2, progress=True).endswith("1 of 4, 3 tok/s\n")


def test_a_line_fits_the_terminal_and_covers_the_one_before(drawn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    lines = drawn(Screen(), 2.0, 3.0, total=1000).split("\r")[1:]
    assert all(len(line.rstrip("\n")) <= 29 for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    first, second, *_ = drawn(Screen(), 2.0, 3.0, total=2).split("\r")[1:]
    assert len(second) >= len(first)


def test_every_call_of_an_llm_has_a_bar_on_request(capsys):
    with LLM("fake", max_batch=4) as llm:
        values = {"seed": 1, "max_tokens": 4}
        for call, total in (
            (lambda **more: llm.generate(["a", "b", "c"], n=2, **values, **more), 6),
            (lambda **more: llm.generate_from_ids([[97]], **values, **more), 1),
            (lambda **more: llm.score(["abc", "de"], **more), 2),
        ):
            plain = call()
            assert capsys.readouterr().err == ""
            assert call(progress=True) == plain
            *_, last = capsys.readouterr().err.split("\r")
            assert last.startswith(f"[########################] {total} of {total}")
            assert last.endswith("taken\n")


def test_a_program_without_stderr_has_no_bar_on_stdout(monkeypatch, capsys):
    closed = Screen()
    closed.close()
    for stream in (None, closed, object()):
        monkeypatch.setattr(sys, "stderr", stream)
        for progress in (None, True) if isinstance(stream, Screen | None) else (None,):
            with Bar(3, lambda now: (1, ""), progress) as bar:
                bar.tick()
    assert capsys.readouterr().out == ""


def test_an_error_ends_the_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())

    def interrupted():
        with Bar(3, lambda now: (1, ""), True) as bar:
            bar.tick()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sys.stderr.getvalue().endswith("1 of 3\n")
