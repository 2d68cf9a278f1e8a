"""Where a prompt comes from: arguments, files, pipes, templates."""

import os
import socket
import threading

from gencli.cli.inputs import Prompts
from tests.cli.test_inputs import given_to


def test_where_a_prompt_ends(run):
    assert "ends with a space" in run("hi ", "--max-tokens", "2").err
    assert "ends with a space" not in run("hi", "--max-tokens", "2").err
    assert run("hi ", "--max-tokens", "2", "--quiet").err == ""

    assert (
        run("--chat", "--preset", "neutral", "hi", "--seed", "3").out
        == run("user: hi\nassistant:", "--seed", "3").out
    )


def test_a_pipe_that_stays_open_and_silent_does_not_hold_a_run_up(given_to):
    reader, writer = os.pipe()
    left, right = socket.socketpair()
    with left, right:
        for handle in (reader, left.fileno()):
            found = given_to(handle)
            assert found.texts == ("hi",)
            assert "stdin is open but sent nothing for 0.2 s" in found.notices[0]
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


JSON = ("--format", "json", "--seed", "1", "--max-tokens", "4")


def test_a_prompt_is_an_argument_a_pipe_or_a_file(run, tmp_path):
    assert run("hi", *JSON).json["prompt"] == "hi"

    for data, prompt in [
        (b"hi", "hi"), (b"hi\n", "hi"), (b"hi\r\n", "hi"), (b"hi\n\n", "hi\n"),
        (b"\xef\xbb\xbfh\xc3\xa9", "hé"),
    ]:  # fmt: skip
        assert run(*JSON, stdin=data).json["prompt"] == prompt, data
        assert run(*JSON, "-", stdin=data).json["prompt"] == prompt, data

    for name in "ab":
        (tmp_path / name).write_text(f"{name}!\n")
    records = run("--file", tmp_path / "b", "--file", tmp_path / "a", *JSON).json
    assert [record["prompt"] for record in records] == ["b!", "a!"]


SUMMARY = ("--format", "jsonl", "--max-tokens", "2")


def test_a_pipe_beside_a_prompt_stands_behind_it_or_where_it_says(run, tmp_path):
    for arguments, expected in [
        (["Sum up:"], ["Sum up:\n\nnotes"]),
        (["One", "Two"], ["One\n\nnotes", "Two\n\nnotes"]),
        (["Say {stdin}, {stdin}."], ["Say notes, notes."]),
        (["{stdin}!", "Two"], ["notes!", "Two"]),
        (["Tom", "-"], ["Tom", "notes"]),
        (["{stdin}?", "-"], ["notes?", "notes"]),
    ]:
        result = run(*arguments, *SUMMARY, stdin=b"notes\n")
        assert [record["prompt"] for record in result.lines] == expected, arguments
        is_implicit = "-" not in arguments and "{stdin}" not in " ".join(arguments)
        assert ("5 characters of stdin" in result.err) is is_implicit, arguments

    (tmp_path / "p").write_text("Literally {stdin}:\n")
    assert run("-f", tmp_path / "p", *SUMMARY, stdin=b"x").lines[0]["prompt"] == "Literally {stdin}:\n\nx"
    assert run("-f", tmp_path / "p", *SUMMARY).lines[0]["prompt"] == "Literally {stdin}:"

    for data in [b"", b"\n"]:
        result = run("hi", *SUMMARY, stdin=data)
        assert result.lines[0]["prompt"] == "hi", data
        assert "stdin" not in result.err, data
        run("hi {stdin}", *SUMMARY, stdin=data).refused("The input (stdin) is empty")
