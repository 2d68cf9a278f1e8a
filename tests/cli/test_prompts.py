"""Where a prompt comes from."""

import io

import pytest
import torch
from safetensors.torch import save_file

from gencli.cli.prompts import read_prompts
from gencli.errors import UsageError
from gencli.models.places import bundled_folder

JSON = ("--format", "json", "--seed", "1", "--max-tokens", "4")


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


def test_no_prompt_on_a_terminal_is_asked_for_and_not_waited_for(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(UsageError, match="There is no prompt"):
        read_prompts([], [])


def test_a_raw_prompt_that_ends_with_a_space_is_told(run):
    assert "ends with a space" in run("hi ", "--max-tokens", "2").err
    assert "ends with a space" not in run("hi", "--max-tokens", "2").err
    assert run("hi ", "--max-tokens", "2", "--quiet").err == ""


def test_a_chat_prompt_ends_where_the_answer_begins(run):
    assert run("--chat", "hi", "--seed", "3").out == run("user: hi\nassistant:", "--seed", "3").out


@pytest.mark.parametrize(("command", "said"), [("run", "--chat"), ("chat", "--quiet"), ("batch", "--chat")])
def test_chat_without_a_template_is_refused_before_weights_are_read(gencli, tmp_path, command, said):
    folder, model = bundled_folder("tiny"), tmp_path / "model"
    model.mkdir()
    for path in folder.iterdir():
        if path.name != "chat_template.jinja" and path.suffix != ".safetensors":
            (model / path.name).symlink_to(path)
    save_file({"none of the weights": torch.zeros(1)}, model / "model.safetensors")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "hi"}\n')
    more = {"run": ["hi"], "chat": [], "batch": [tmp_path / "rows.jsonl"]}[command]
    result = gencli(command, "--model", model, said, *more, stdin=b"hi\n")
    assert (result.code, result.out) == (5, "")
    assert "no chat template" in result.err
    assert "raw" in result.err


def test_a_model_that_is_nowhere_names_the_nearest(gencli):
    result = gencli("run", "--model", "tnyi", "hi")
    assert (result.code, result.out) == (5, "")
    assert "tnyi is neither" in result.err
    assert "Did you mean 'tiny'?" in result.err
