"""tokenize, doctor and completion."""

import os
import subprocess
import sys

import pytest

from gencli.runtime import diagnosis
from tests.cli.conftest import ROOT


def test_tokenize_shows_ids_pieces_and_bytes(gencli):
    result = gencli("tokenize", "--model", "fake", "hé")
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[1] == ["0", "104", "'h'", "68"]
    assert [row[1] for row in rows[1:4]] == ["104", "195", "169"]
    assert result.out.endswith("3 tokens, 2 characters, 3 bytes\n")


def test_tokenize_reads_a_pipe_and_writes_json(gencli):
    record = gencli("tokenize", "--format", "json", stdin=b"Hello Mia\n").json
    assert (record["text"], record["counts"]["bytes"]) == ("Hello Mia", 9)
    assert record["tokens"][0] == {"id": 0, "piece": "<|bos|>", "bytes": "", "special": True}
    assert bytes.fromhex("".join(token["bytes"] for token in record["tokens"])) == b"Hello Mia"


def test_decode_is_the_other_direction(gencli):
    tokens = gencli("tokenize", "--format", "json", "--no-special", "Hello Mia").json["tokens"]
    ids = ",".join(str(token["id"]) for token in tokens)
    assert gencli("tokenize", "--decode", ids).out == "Hello Mia\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--decode", "1", "x"], "both given"),
        (["--decode", "9999"], "9999"),
        (["--decode", "x"], "not a token id"),
        (["a", "b"], "one text"),
    ],
    ids=str,
)
def test_what_tokenize_cannot_do_is_said(gencli, arguments, said):
    result = gencli("tokenize", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_doctor_has_a_line_of_advice_for_each_finding(gencli):
    result = gencli("doctor", "--format", "json")
    assert result.code == 0
    assert {"version", "device", "cache", "plug-in", "terminal"} <= {row["area"] for row in result.json}
    assert [row for row in result.json if not row["advice"] or not row["value"]] == []
    assert "torch" in gencli("doctor").out


def test_what_fails_while_doctor_looks_is_a_finding(monkeypatch):
    def broken():
        raise RuntimeError("no such luck")
        yield

    monkeypatch.setattr(diagnosis, "_AREAS", {"device": broken})
    (finding,) = diagnosis.examine()
    assert (finding.is_good, finding.value) == (False, "RuntimeError: no such luck")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(gencli, shell):
    result = gencli("completion", shell)
    assert result.code == 0
    assert "_GENCLI_COMPLETE" in result.out
    assert "gencli" in result.out


def test_completion_of_another_shell_is_refused(gencli):
    result = gencli("completion", "bsh")
    assert (result.code, result.out) == (2, "")
    assert "Did you mean 'bash' or 'zsh'?" in result.err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("gencli do", ["doctor"]),
        ("gencli run --model tiny", ["tiny", "tiny-draft"]),
        ("gencli run --stage temp", ["temperature"]),
        ("gencli chat --max-to", ["--max-tokens"]),
        ("gencli models sh", ["show"]),
        ("gencli completion z", ["zsh"]),
        ("gencli stages show repet", ["repetition"]),
        ("gencli config diff brai", ["brainstorm"]),
        ("gencli run --draft suf", ["suffix"]),
    ],
)
def test_completion_offers_names_without_anything_heavy(words, offered, tmp_path):
    place = str(len(words.split()) - 1)
    asked = {"_GENCLI_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gencli"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **asked, "HF_HUB_CACHE": str(tmp_path)},
        check=False,
    )
    assert done.stdout.split() == offered
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "transformers", "tokenizers", "numpy", "prompt_toolkit"})
