"""Where a prompt comes from."""

import os
import socket
import threading

from gencli.cli.parser.prompts import Prompts
from tests.cli.parser.test_prompts import given_to


def test_where_a_prompt_ends(run):
    assert "ends with a space" in run("hi ", "--max-tokens", "2").err
    assert "ends with a space" not in run("hi", "--max-tokens", "2").err
    assert run("hi ", "--max-tokens", "2", "--quiet").err == ""

    assert run("--chat", "hi", "--seed", "3").out == run("user: hi\nassistant:", "--seed", "3").out


def test_a_pipe_that_stays_open_and_silent_does_not_hold_a_run_up(given_to):
    reader, writer = os.pipe()
    left, right = socket.socketpair()
    with left, right:
        for handle in (reader, left.fileno()):
            found = given_to(handle)
            assert found.texts == ("hi",)
            assert "stdin is open, but gave nothing in 0.2 s" in found.notices[0]
    os.close(writer)
    assert given_to(reader) == Prompts(("hi",))
    os.close(reader)


def test_a_pipe_that_has_begun_or_is_asked_for_is_read_to_its_end(given_to):
    reader, writer = os.pipe()
    os.write(writer, b"a")
    rest = threading.Timer(0.5, lambda: (os.write(writer, b"b"), os.close(writer)))
    rest.start()
    assert given_to(reader).texts == ("hi\n\nab",)
    rest.join()
    os.close(reader)

    reader, writer = os.pipe()
    rest = threading.Timer(0.5, lambda: (os.write(writer, b"late"), os.close(writer)))
    rest.start()
    assert given_to(reader, "{stdin}!").texts == ("late!",)
    rest.join()
    os.close(reader)
