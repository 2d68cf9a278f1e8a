"""A message has a line of its own where a text before it on the screen has not ended its line."""

import io
import os
import re
import sys

import pytest
import torch

from gencli.cli.app import main
from gencli.models.other_runners import FakeRunner
from tests.helpers.terminals import until_closed

pty = pytest.importorskip("pty")

FAULT = "CUDA error: an illegal memory access was encountered"
LETTERS = ("-m", "fake", "--seed", "1", "--allow-ids", "97,98,99,100")


@pytest.fixture(autouse=True)
def lost(monkeypatch):
    """The device of the fake model is lost in the fifth step."""
    steps, forward = [], FakeRunner.forward

    def failing(self, plan):
        steps.append(plan)
        if len(steps) % 5 == 0:
            raise torch.AcceleratorError(FAULT)
        return forward(self, plan)

    monkeypatch.setattr(FakeRunner, "forward", failing)


@pytest.fixture
def on_screen(monkeypatch):
    """Call a command with these streams on one terminal without colours; return what that shows."""
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments, streams=("stdout", "stderr")):
        leader, follower = pty.openpty()
        with monkeypatch.context() as patched:
            for name in streams:
                patched.setattr(sys, name, os.fdopen(os.dup(follower), "w", encoding="utf-8"))
            main([str(argument) for argument in arguments])
            for name in streams:
                getattr(sys, name).close()
        os.close(follower)
        return until_closed(leader).decode().replace("\r\n", "\n")

    return call


def test_a_run_or_an_answer_that_fails_in_a_line_ends_it(on_screen, monkeypatch):
    assert re.match(r"[abcd]{4}\nError: The GPU has failed", on_screen("run", *LETTERS, "Hello"))

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hello\n")))
    shown = on_screen("chat", *LETTERS, "--raw")
    assert re.search(r"^[abcd]{4}\nError: The GPU has failed", shown, re.MULTILINE)

    monkeypatch.delenv("NO_COLOR")
    shown = on_screen("run", *LETTERS, "--choice", "a", "--constrain-after", "#", "Hello")
    assert re.search(r"\[thinking\] [abcd]{4}\nError: The GPU has failed", shown)


def test_a_batch_that_fails_ends_its_progress(on_screen, tmp_path, monkeypatch):
    for colours in [True, False]:
        with monkeypatch.context() as patch:
            if colours:
                patch.delenv("NO_COLOR")
            rows = tmp_path / "rows.jsonl"
            rows.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
            shown = on_screen("batch", rows, *LETTERS, "-o", "-")
            assert re.search(r"(^|\x1b\[\?25h)Error: The GPU has failed", shown, re.MULTILINE), colours
            assert "\n\n" not in shown, colours


def test_a_pipe_gets_the_text_alone(gencli, on_screen, capfd):
    done = gencli("run", *LETTERS, "Hello")
    assert re.fullmatch("[abcd]{4}", done.out)
    assert done.err.startswith("Error: ")
    assert on_screen("run", *LETTERS, "Hello", streams=["stderr"]).startswith(("Error: ", "\x1b", "\r"))
    assert capfd.readouterr().out == done.out
