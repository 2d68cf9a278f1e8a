"""Errors that are no Exception: they end a command with a message and a code, a row with its record."""

import json
import shutil
from pathlib import Path

import pytest

from gencli.models.files.local_models import bundled_folder

DEADLY = "a" * 28 + "b"


@pytest.fixture
def panicking(tmp_path):
    """A model whose tokenizer panics at one text: its expression takes more steps than the library allows."""
    folder = Path(shutil.copytree(bundled_folder("tiny-draft"), tmp_path / "model"))
    found = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    found["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, found["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(found))
    return folder


def test_a_panic_of_a_tokenizer_is_an_error_of_the_model(gencli, panicking):
    for words in [("run", "--max-tokens", "2"), ("tokenize",)]:
        result = gencli(*words, "-m", panicking, DEADLY)
        assert result.code == 5, words
        assert "Error: The tokenizer of" in result.err, words
        assert "Traceback" not in result.err, words


def test_a_panic_of_a_tokenizer_ends_one_row_of_a_batch(gencli, panicking, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("ab", DEADLY, "ba")))
    result = gencli("batch", rows, "-m", panicking, "--max-tokens", "2", "-o", "-", "--quiet")
    assert result.code == 7
    assert [bool(line["error"]) for line in result.lines] == [False, True, False]


def test_no_token_within_the_time_is_an_error_of_every_command(gencli, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "hi"}\n')
    late, sides = ("-m", "fake", "--max-time", "0.000001"), ("--a", "top_k=4", "--b", "top_k=5")
    for command, code in (
        (("run", "hi"), 6),
        (("run", "hi", "--beams", "2"), 6),
        (("run", "hi", "--prompt-logprobs", "0"), 6),
        (("explain", "hi"), 6),
        (("sweep", "--vary", "top_k=4,5", "hi"), 6),
        (("sweep", "--vary", "top_k=4,5", "--first", "hi"), 6),
        (("compare", *sides, "hi"), 6),
        (("batch", rows, "-o", tmp_path / "out.jsonl"), 7),
    ):
        found = gencli(*command, *late)
        assert found.code == code, (command, found)
        assert "--max-time passed before the first token." in found.err + found.out, command
