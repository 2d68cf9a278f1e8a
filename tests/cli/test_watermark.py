"""`--watermark` and `gencli detect` on the command line; no output, record or file has a key in it."""

import json

import pytest

from tests.server.conftest import serve

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
        result = gencli("detect", *arguments, "text")
        assert result.code == 2, arguments
        assert message in result.err, arguments

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
        result = gencli("run", "--model", "fake", *mark, "--max-tokens", "4", "hi")
        assert result.code in (2, 4), line
        assert (result.out, words in result.err) == ("", True), result.err
