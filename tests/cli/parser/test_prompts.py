"""Where a prompt comes from."""

import io
import json
import os

import pytest
import torch
from safetensors.torch import save_file

from gencli.cli import inputs as prompts
from gencli.cli.inputs import Prompts, read_prompts
from gencli.errors import UsageError
from gencli.models.files.local_models import bundled_folder


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_is_empty_or_no_text_is_refused(run, tmp_path):
    for data in [b"", b"\n"]:
        result = run(stdin=data)
        assert result.code == 2, data
        assert "The input (stdin) is empty" in result.err, data

    (tmp_path / "x").write_bytes(b"ab\xff")
    for result in (run(stdin=b"ab\xff"), run("--file", tmp_path / "x")):
        assert result.code == 2
        assert "byte 0xff at offset 2" in result.err


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


def test_a_redirected_file_is_read_as_a_pipe_is(given_to, tmp_path):
    for content, expected in [(b"", "hi"), (b"text\n", "hi\n\ntext")]:
        (tmp_path / "x").write_bytes(content)
        handle = os.open(tmp_path / "x", os.O_RDONLY)
        assert given_to(handle).texts == (expected,), content
        os.close(handle)
        null = os.open(os.devnull, os.O_RDONLY)
        assert given_to(null) == Prompts(("hi",)), content
        os.close(null)


def test_without_a_stdin_a_prompt_stands_alone_and_asks_for_none(monkeypatch):
    for stream in (None, _Terminal()):
        monkeypatch.setattr("sys.stdin", stream)
        assert read_prompts(["hi"], []) == Prompts(("hi",))
        with pytest.raises(UsageError, match="nothing is piped in"):
            read_prompts(["{stdin}"], [])

    monkeypatch.setattr("sys.stdin", _Terminal())
    with pytest.raises(UsageError, match="There is no prompt"):
        read_prompts([], [])


def test_chat_without_a_template_is_refused_before_weights_are_read(gencli, tmp_path):
    folder, model = bundled_folder("tiny"), tmp_path / "model"
    model.mkdir()
    for path in folder.iterdir():
        if path.name != "chat_template.jinja" and path.suffix != ".safetensors":
            (model / path.name).symlink_to(path)
    save_file({"none of the weights": torch.zeros(1)}, model / "model.safetensors")
    for command, said, row in [
        ("run", "--chat", {}),
        ("chat", "--quiet", {}),
        ("batch", "--chat", {"prompt": "hi"}),
        ("batch", "--quiet", {"messages": [{"role": "user", "content": "hi"}]}),
    ]:
        (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{{\n")
        more = {"run": ["hi"], "chat": [], "batch": [tmp_path / "rows.jsonl"]}[command]
        result = gencli(command, "--model", model, said, *more, stdin=b"hi\n")
        assert (result.code, result.out) == (5, ""), command
        assert "no chat template" in result.err, command
        assert "raw" in result.err, command


def test_a_model_that_is_nowhere_names_the_nearest(gencli, tmp_path):
    result = gencli("run", "--model", "tnyi", "hi")
    assert (result.code, result.out) == (5, "")
    assert "tnyi is neither" in result.err
    assert "Did you mean 'tiny'?" in result.err

    for name in ("foo.gguf", tmp_path / "foo.gguf"):
        result = gencli("run", "--model", name, "hi")
        assert (result.code, "There is no file" in result.err, "pull" in result.err) == (5, True, False)


def test_a_model_that_is_no_file_is_named_as_what_it_is(gencli, tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "dead.gguf").symlink_to(tmp_path / "nowhere")
    for name, kind in (
        (tmp_path / "pipe.gguf", "a pipe, but has to be a GGUF file"),
        (tmp_path / "dead.gguf", "a link to nothing, but has to be a GGUF file"),
        ("/dev/null", "a device, but has to be a folder or a GGUF file"),
    ):
        result = gencli("run", "--model", name, "hi")
        assert (result.code, result.err) == (5, f"Error: {name} is {kind}.\n")


def test_ctrl_c_while_the_prompt_is_typed_is_an_interrupt(gencli, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prompts, "read_stream", interrupted)
    result = gencli("run", "--model", "fake", "-")
    assert (result.code, result.out, result.err) == (130, "", "Interrupted.\n")
