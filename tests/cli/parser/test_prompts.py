"""Where a prompt comes from."""

import io
import json
import os
import socket
import threading

import pytest
import torch
from safetensors.torch import save_file

from gencli.cli.parser import prompts
from gencli.cli.parser.prompts import Prompts, read_prompts
from gencli.errors import UsageError
from gencli.models.files.locate import bundled_folder

JSON = ("--format", "json", "--seed", "1", "--max-tokens", "4")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_prompt_is_an_argument(run):
    assert run("hi", *JSON).json["prompt"] == "hi"


@pytest.mark.parametrize(
    ("data", "prompt"),
    [
        (b"hi", "hi"),
        (b"hi\n", "hi"),
        (b"hi\r\n", "hi"),
        (b"hi\n\n", "hi\n"),
        (b"\xef\xbb\xbfh\xc3\xa9", "hé"),
    ],
)
def test_pipe_gives_its_text_without_one_final_newline(run, data, prompt):
    assert run(*JSON, stdin=data).json["prompt"] == prompt
    assert run(*JSON, "-", stdin=data).json["prompt"] == prompt


def test_files_are_prompts_in_their_order(run, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}!\n")
    records = run("--file", tmp_path / "b", "--file", tmp_path / "a", *JSON).json
    assert [record["prompt"] for record in records] == ["b!", "a!"]


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_pipe_is_refused(run, data):
    result = run(stdin=data)
    assert result.code == 2
    assert "The input (stdin) is empty" in result.err


def test_bytes_that_are_no_text_are_refused_with_their_place(run, tmp_path):
    (tmp_path / "x").write_bytes(b"ab\xff")
    for result in (run(stdin=b"ab\xff"), run("--file", tmp_path / "x")):
        assert result.code == 2
        assert "byte 0xff at offset 2" in result.err


SUMMARY = ("--format", "jsonl", "--max-tokens", "2")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Sum up:"], ["Sum up:\n\nnotes"]),
        (["One", "Two"], ["One\n\nnotes", "Two\n\nnotes"]),
        (["Say {stdin}, {stdin}."], ["Say notes, notes."]),
        (["{stdin}!", "Two"], ["notes!", "Two"]),
        (["Tom", "-"], ["Tom", "notes"]),
        (["{stdin}?", "-"], ["notes?", "notes"]),
    ],
)
def test_a_pipe_beside_a_prompt_stands_behind_it_or_where_it_says(run, arguments, expected):
    result = run(*arguments, *SUMMARY, stdin=b"notes\n")
    assert [record["prompt"] for record in result.lines] == expected
    is_implicit = "-" not in arguments and "{stdin}" not in " ".join(arguments)
    assert ("5 characters of stdin" in result.err) is is_implicit


def test_a_pipe_stands_behind_the_prompt_of_a_file_whose_text_is_its_own(run, tmp_path):
    (tmp_path / "p").write_text("Literally {stdin}:\n")
    assert run("-f", tmp_path / "p", *SUMMARY, stdin=b"x").lines[0]["prompt"] == "Literally {stdin}:\n\nx"
    assert run("-f", tmp_path / "p", *SUMMARY).lines[0]["prompt"] == "Literally {stdin}:"


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_pipe_beside_a_prompt_changes_nothing(run, data):
    result = run("hi", *SUMMARY, stdin=data)
    assert result.lines[0]["prompt"] == "hi"
    assert "stdin" not in result.err
    result = run("hi {stdin}", *SUMMARY, stdin=data)
    assert (result.code, "The input (stdin) is empty" in result.err) == (2, True)


def test_what_is_piped_in_beside_a_prompt_is_text_of_a_bounded_length(run, monkeypatch):
    assert "byte 0xff at offset 2" in run("hi", stdin=b"ab\xff").err
    monkeypatch.setattr(prompts, "MAX_PROMPT", 1 << 20)
    for arguments in (["hi"], [], ["-"], ["{stdin}"]):
        result = run(*arguments, stdin=b"a" * (1 << 20) + b"b")
        assert (result.code, "more than 1,048,576 bytes" in result.err) == (2, True)


def test_the_tokens_of_a_text_are_those_of_the_prompt_of_a_run(gencli):
    result = gencli("tokenize", "hi", stdin=b"there")
    assert result.out == gencli("tokenize", "hi\n\nthere").out
    assert "5 characters of stdin" in result.err


@pytest.fixture
def given_to(monkeypatch):
    """Call `given_to(handle)`: the prompt `hi` with this handle as stdin."""
    monkeypatch.setattr(prompts, "PATIENCE", 0.2)

    def read(handle, *arguments):
        with os.fdopen(handle, "r", closefd=False) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            return read_prompts(arguments or ["hi"], [])

    return read


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


def test_a_pipe_that_has_begun_is_read_to_its_end(given_to):
    reader, writer = os.pipe()
    os.write(writer, b"a")
    rest = threading.Timer(0.5, lambda: (os.write(writer, b"b"), os.close(writer)))
    rest.start()
    assert given_to(reader).texts == ("hi\n\nab",)
    rest.join()
    os.close(reader)


def test_a_prompt_that_asks_for_stdin_waits_for_it(given_to):
    reader, writer = os.pipe()
    rest = threading.Timer(0.5, lambda: (os.write(writer, b"late"), os.close(writer)))
    rest.start()
    assert given_to(reader, "{stdin}!").texts == ("late!",)
    rest.join()
    os.close(reader)


@pytest.mark.parametrize(("content", "expected"), [(b"", "hi"), (b"text\n", "hi\n\ntext")])
def test_a_redirected_file_is_read_as_a_pipe_is(given_to, tmp_path, content, expected):
    (tmp_path / "x").write_bytes(content)
    handle = os.open(tmp_path / "x", os.O_RDONLY)
    assert given_to(handle).texts == (expected,)
    os.close(handle)
    null = os.open(os.devnull, os.O_RDONLY)
    assert given_to(null) == Prompts(("hi",))
    os.close(null)


def test_without_a_stdin_a_prompt_stands_alone_and_asks_for_none(monkeypatch):
    for stream in (None, _Terminal()):
        monkeypatch.setattr("sys.stdin", stream)
        assert read_prompts(["hi"], []) == Prompts(("hi",))
        with pytest.raises(UsageError, match="nothing is piped in"):
            read_prompts(["{stdin}"], [])


def test_no_prompt_on_a_terminal_is_asked_for_and_not_waited_for(monkeypatch):
    monkeypatch.setattr("sys.stdin", _Terminal())
    with pytest.raises(UsageError, match="There is no prompt"):
        read_prompts([], [])


def test_a_raw_prompt_that_ends_with_a_space_is_told(run):
    assert "ends with a space" in run("hi ", "--max-tokens", "2").err
    assert "ends with a space" not in run("hi", "--max-tokens", "2").err
    assert run("hi ", "--max-tokens", "2", "--quiet").err == ""


def test_a_chat_prompt_ends_where_the_answer_begins(run):
    assert run("--chat", "hi", "--seed", "3").out == run("user: hi\nassistant:", "--seed", "3").out


@pytest.mark.parametrize(
    ("command", "said", "row"),
    [
        ("run", "--chat", {}),
        ("chat", "--quiet", {}),
        ("batch", "--chat", {"prompt": "hi"}),
        ("batch", "--quiet", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_chat_without_a_template_is_refused_before_weights_are_read(gencli, tmp_path, command, said, row):
    folder, model = bundled_folder("tiny"), tmp_path / "model"
    model.mkdir()
    for path in folder.iterdir():
        if path.name != "chat_template.jinja" and path.suffix != ".safetensors":
            (model / path.name).symlink_to(path)
    save_file({"none of the weights": torch.zeros(1)}, model / "model.safetensors")
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{{\n")
    more = {"run": ["hi"], "chat": [], "batch": [tmp_path / "rows.jsonl"]}[command]
    result = gencli(command, "--model", model, said, *more, stdin=b"hi\n")
    assert (result.code, result.out) == (5, "")
    assert "no chat template" in result.err
    assert "raw" in result.err


def test_a_gguf_that_is_not_there_is_no_name_of_the_hub(gencli, tmp_path):
    for name in ("foo.gguf", tmp_path / "foo.gguf"):
        result = gencli("run", "--model", name, "hi")
        assert (result.code, "There is no file" in result.err, "pull" in result.err) == (5, True, False)


def test_a_model_that_is_nowhere_names_the_nearest(gencli):
    result = gencli("run", "--model", "tnyi", "hi")
    assert (result.code, result.out) == (5, "")
    assert "tnyi is neither" in result.err
    assert "Did you mean 'tiny'?" in result.err
