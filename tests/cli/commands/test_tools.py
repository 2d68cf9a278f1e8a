"""tokenize, doctor and completion."""

import os
import subprocess
import sys

from gencli.runtime import machine as diagnosis
from tests.cli.conftest import ROOT


def test_tokenize_shows_ids_pieces_and_bytes_and_decodes(gencli):
    result = gencli("tokenize", "--model", "fake", "hé")
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[1] == ["0", "104", "'h'", "68"]
    assert [row[1] for row in rows[1:4]] == ["104", "195", "169"]
    assert result.out.endswith("3 tokens, 2 characters, 3 bytes\n")

    record = gencli("tokenize", "--format", "json", stdin=b"Hello Mia\n").json
    assert (record["text"], record["counts"]["bytes"]) == ("Hello Mia", 9)
    assert record["tokens"][0] == {"id": 0, "piece": "<|bos|>", "bytes": "", "special": True}
    assert bytes.fromhex("".join(token["bytes"] for token in record["tokens"])) == b"Hello Mia"

    tokens = gencli("tokenize", "--format", "json", "--no-special", "Hello Mia").json["tokens"]
    ids = ",".join(str(token["id"]) for token in tokens)
    assert gencli("tokenize", "--decode", ids).out == "Hello Mia\n"


def test_what_tokenize_cannot_do_is_said(gencli):
    for arguments, said in [
        (["--decode", "1", "x"], "both given"),
        (["--decode", "9999"], "9999"),
        (["--decode", "x"], "not a token id"),
        (["a", "b"], "one text"),
    ]:
        result = gencli("tokenize", *arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert said in result.err, arguments


def test_doctor_has_a_line_of_advice_for_each_finding_and_for_what_fails(gencli, monkeypatch):
    result = gencli("doctor", "--format", "json")
    assert result.code == 0
    assert {"version", "device", "cache", "plug-in", "terminal"} <= {row["area"] for row in result.json}
    assert [row for row in result.json if not row["advice"] or not row["value"]] == []
    assert "torch" in gencli("doctor").out

    def broken():
        raise RuntimeError("no such luck")
        yield

    monkeypatch.setattr(diagnosis, "_AREAS", {"device": broken})
    (finding,) = diagnosis.examine()
    assert (finding.is_good, finding.value) == (False, "RuntimeError: no such luck")


def test_completion_prints_the_script_of_a_shell(gencli):
    for shell in ["bash", "zsh", "fish"]:
        result = gencli("completion", shell)
        assert result.code == 0, shell
        assert "_GENCLI_COMPLETE" in result.out, shell
        assert "gencli" in result.out, shell

    result = gencli("completion", "bsh")
    assert (result.code, result.out) == (2, "")
    assert "Did you mean 'bash' or 'zsh'?" in result.err


OFFERED = [
    ("gencli run --model tiny", ["tiny", "tiny-draft"]),
    ("gencli do", ["doctor"]),
    ("gencli run --stage temp", ["temperature"]),
    ("gencli chat --max-to", ["--max-tokens"]),
    ("gencli models sh", ["show"]),
    ("gencli completion z", ["zsh"]),
    ("gencli stages show repet", ["repetition"]),
    ("gencli config diff brai", ["brainstorm"]),
    ("gencli run --draft suf", ["suffix"]),
]


def assert_names_are_offered_without_anything_heavy(cases, tmp_path):
    for words, offered in cases:
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
        assert done.stdout.split() == offered, words
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert imported.isdisjoint({"torch", "transformers", "tokenizers", "numpy", "prompt_toolkit"}), words
