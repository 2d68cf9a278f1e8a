"""tokenize, doctor, completion, and watermarks with gencli detect."""

import json
import os
import subprocess
import sys

import pytest

from gencli.config.preset_files import stage_order, stage_values
from gencli.runtime import machine as diagnosis
from tests.cli.conftest import ROOT
from tests.server.conftest import serve


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


def test_commands_that_read_a_model_take_that_of_the_variable(gencli, monkeypatch):
    monkeypatch.setenv("GENCLI_MODEL", "missing-model")
    for arguments in (["tokenize", "x"], ["doctor", "--draft", "mtp"]):
        assert "missing-model" in gencli(*arguments).err
    assert gencli("tokenize", "--model", "fake", "x").out
    monkeypatch.setenv("GENCLI_DRAFT", "mtp")  # a drafter of runs; doctor checks a head if it is asked to
    assert "python" in gencli("doctor").out


def test_what_tokenize_cannot_do_is_said(gencli):
    for arguments, said in [
        (["--decode", "1", "x"], "both given"),
        (["--decode", "9999"], "9999"),
        (["--decode", "x"], "not a token id"),
        (["a", "b"], "one text"),
    ]:
        gencli("tokenize", *arguments).refused(said)


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

    gencli("completion", "bsh").refused("Did you mean 'bash' or 'zsh'?")


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


SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def tab(gencli, monkeypatch, tmp_path):
    """Call `tab(shell, *words)`: what is offered for the last of the words, a line for each."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder/inner", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("mine.yaml", "stage.py", "notes.txt"):
        (tmp_path / name).write_text("")

    def press(shell, *words):
        monkeypatch.setenv("_GENCLI_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(words))
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        result = gencli()
        assert result.code == 0, result.err
        return result.out.splitlines()

    return press


# Bash takes words apart at = and :, and puts what is offered in the place of the last part.
BASH = {
    "a command": ("r", ["run"]),
    "a stage to show": ("stages show repet", ["repetition"]),
    "a stage or file to check": ("stages check sta", ["stage.py"]),
    "presets to compare": ("config diff precise brai", ["brainstorm"]),
    "a preset as a side": ("compare --a brai", ["brainstorm"]),
    "a profile as a side": ("compare --b compat : ml", ["mlx"]),
    "presets and files to check": ("config lint mine", ["mine.yaml"]),
    "a drafter": ("run --draft s", ["suffix"]),
    "a drafter that is a folder": ("run --draft fo", ["folder/"]),
    "a folder in a folder": ("run --model folder/", ["folder/inner/"]),
    "a model": ("run -m tiny-", ["tiny-draft"]),
    "a weaker model": ("run --contrast tiny-", ["tiny-draft"]),
    "a preset": ("run --preset brai", ["brainstorm"]),
    "a preset behind an equals sign": ("run --preset = brai", ["brainstorm"]),
    "a preset's file": ("run --preset ./", ["./folder/", "./mine.yaml"]),
    "a field of a stage": ("run --stage top_k : t", ["ties="]),
    "all fields of a stage": ("run --stage temperature :", ["temperature="]),
    "a field behind an equals sign": ("run --stage = top_k : t", ["ties="]),
    "an order": ("run --chain top_k,te", ["top_k,temperature"]),
    "a choice": ("run --sampler gu", ["gumbel"]),
    "a command of a command": ("config sh", ["show"]),
    "a flag of a command of a command": ("config show --repet", ["--repetition-penalty"]),
    "a model to show": ("models show tiny-", ["tiny-draft"]),
    "nothing behind a model": ("models show tiny t", []),
    "a shell": ("completion z", ["zsh"]),
    "nothing for a prompt": ("run Onc", []),
}


def test_bash_is_offered(tab):
    for words, offered in BASH.values():
        assert tab("bash", "gencli", *words.split(" ")) == offered, words


def test_zsh_and_fish_are_offered_whole_words(tab):
    for shell in ["zsh", "fish"]:
        for words, offered in [
            ("run --preset=brai", "--preset=brainstorm"),
            ("run --stage top_k:t", "top_k:ties="),
            ("run --stage=top_k:t", "--stage=top_k:ties="),
            ("stages show top_p", "top_p"),
            ("run --draft subf", None),
        ]:
            text = "\n".join(tab(shell, "gencli", *words.split())).replace("\\", "").replace("::", ":")
            assert (offered in text) if offered else (text in ("", "_files")), (shell, words)

    for shell in SHELLS:
        lines = tab(shell, "gencli", "co")
        for word in ("completion", "config"):
            assert any(word in line for line in lines), (shell, word)


def test_the_script_of_bash_and_fields_that_are_not_offered_again(gencli):
    assert stage_values("top_k:k=3,") == ["top_k:k=3,ties=", "top_k:k=3,keep="]
    assert stage_values("top_k:ties=k") == ["top_k:ties=keep"]
    assert stage_values("none:") == []
    assert "penalties,top_k" in stage_order("penalties,to")
    assert stage_order("top_k,top_k") == []

    script = gencli("completion", "bash").out
    assert "compopt -o nospace" in script
    assert script.endswith("complete -o default -F _gencli_completion gencli\n")


KEY = 6090218471334455667
SPELLED = (str(KEY), f"{KEY:x}", f"{KEY:X}", f"{KEY:_}", f"{KEY:,}")
SAYS = ("--model", "fake", "--allow-ids", "97,98,99,100,101,32", "--max-tokens", "40", "--seed", "3")


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """Arguments of a watermark; the folder and the log are those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "mark.key").write_text(f"{KEY}\n")
    (keys / "other.key").write_text(f"{KEY + 1}\n")
    return lambda kind, file="mark.key": ("--watermark", kind, "--watermark-key", f"keys/{file}")


def test_a_server_keeps_its_key_and_its_mark(marked):
    with serve(watermark="gumbel", watermark_key="keys/mark.key") as client:
        say = {"prompt": "a", "max_tokens": 4, "allow_ids": [97, 98, 99, 100, 101]}
        first, second = (client.post("/v1/completions", json={**say, "seed": seed}) for seed in (1, 2))
        assert first.json()["choices"][0]["text"] == second.json()["choices"][0]["text"]
        refused = [
            client.post("/v1/completions", json={**say, **more})
            for more in (
                {"watermark": "none"},
                {"watermark_key": "keys/other.key"},
                {"temperature": 0},
                {"stages": {"gumbel_mark": {"key": KEY}}},
                {"stages": {"gumbel_mark": {"key": None}}},
                {"beams": 2},
            )
        ]
        assert [reply.status_code for reply in refused] == [400] * len(refused), [r.text for r in refused]
        others = [client.post("/v1/chain", json=say), client.get("/props"), client.get("/metrics")]
        replies = "".join(reply.text for reply in (first, *refused, *others))
        assert not [text for text in SPELLED if text in replies]


def test_what_detect_cannot_do_is_said(gencli, marked, tmp_path):
    for arguments, message in [
        ((), "detect needs --watermark"),
        (("--watermark", "kgw"), "detect needs --watermark-key"),
        (("--watermark", "none", "--watermark-key", "keys/mark.key"), "detect needs --watermark"),
        (("--watermark", "kgw", "--watermark-key", "keys/mark.key", "--window", "3"), "--window"),
        (("--watermark", "kgw", "--watermark-key", "keys/mark.key", "--level", "0"), "--level"),
        (("--watermark", "kgw", "--watermark-key", "keys/mark.key", "more"), "takes one text"),
    ]:
        gencli("detect", *arguments, "text").refused(message)

    rows = [{"prompt": "a", "watermark": "none"}, {"prompt": "a", "watermark_key": "keys/other.key"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = gencli("batch", "rows.jsonl", "--format", "jsonl", *SAYS, *marked("kgw"))
    plain = gencli("run", *SAYS[:-2], "--seed", "3", "--format", "json", "a")
    assert result.code == 7
    first, second = result.lines
    assert "names a file, which a row cannot read" in str(second["error"])
    assert first["text"] == plain.json["text"]


def test_a_key_that_would_mark_nothing_or_never_end_is_refused(gencli, tmp_path):
    key = tmp_path / "mark.yaml"
    for line, words in [
        ("bias: 0", "bias 0, which marks nothing"),
        ("ratio: 0.000001", "makes no id of a vocabulary"),
        ("vocab: 16777216", "but the model has"),
    ]:
        key.write_text(f"key: {KEY}\n{line}\n")
        mark = ("--watermark", "kgw", "--watermark-key", key)
        gencli("run", "--model", "fake", *mark, "--max-tokens", "4", "hi").refused(words, code=(2, 4))
