"""Several texts on a terminal: lines while they are made, and in the end what a pipe has."""

from gencli.cli.result_writers import LiveWriter
from gencli.core.events import Error, Token
from gencli.results.run_results import Results


class Shown:
    """Takes what a live view draws and writes."""

    size = (40, 6)
    is_due = True

    def __init__(self):
        self.lines, self.written, self.name = [], "", "shown"

    def show(self, *lines):
        self.lines = [line.plain for line in lines]

    def erase(self):
        self.lines = []

    def write(self, text):
        self.written += text


def live(samples):
    shown, results = Shown(), Results(["hi"], samples)
    writer = LiveWriter(shown, results, shown, None)

    def tell(*events):
        for event in events:
            results.add(event)
            writer.add(event)

    return shown, tell


def token(sample):
    return Token("1", sample, f"text {sample}", (1,))


def ended(sample):
    return Error("1", sample, "X", "x", f"text {sample}")


def test_a_text_that_is_complete_before_its_turn_keeps_its_line():
    shown, tell = live(3)
    tell(token(0), token(1), ended(1))
    assert shown.written == ""
    assert shown.lines == ["[1.1] text 0", "[1.2] text 1", "1 more"]
    tell(ended(0))
    assert shown.written == "==> 1.1: hi <==\ntext 0\n\n==> 1.2: hi <==\ntext 1\n"
    assert shown.lines == ["1 more"]


def test_texts_without_a_line_are_counted_and_those_that_run_come_first():
    shown, tell = live(20)
    tell(*map(token, range(1, 9)), *map(ended, range(1, 4)))
    assert shown.lines == [*(f"[1.{number}] text {number - 1}" for number in (5, 6, 7, 8, 9)), "15 more"]

    shown, tell = live(6)
    tell(*map(token, range(6)))
    assert shown.lines == [f"[1.{number}] text {number - 1}" for number in range(1, 7)]
