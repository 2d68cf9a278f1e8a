"""gencli run --trace FILE, and gencli explain FILE."""

import json

import pytest


@pytest.fixture
def trace(gencli, tmp_path):
    """The trace of a run, and what the run printed."""
    file = tmp_path / "trace.jsonl"
    words = ("run", "-m", "fake", "--seed", "3", "--max-tokens", "20", "--temperature", "2", "--top-k", "4")
    plain = gencli(*words, "the cat")
    traced = gencli(*words, "the cat", "--trace", file)
    assert (traced.code, traced.out) == (0, plain.out)
    return file


def test_views_of_a_text_a_token_and_a_stage(gencli, trace):
    page = gencli("explain", trace).out
    assert page.startswith("20 tokens   ")
    assert [line.split()[0] for line in page.splitlines() if line[:5] in ("tempe", "top_k")] == [
        "temperature",
        "top_k",
    ]
    assert "most surprising: " in page

    lines = gencli("explain", trace, "--at", "3").out.splitlines()
    assert lines[0].startswith("token 3 of 20   ")
    assert [line.split()[0] for line in lines[3:7]] == ["raw", "temperature", "top_k", "draw"]
    assert lines[7].startswith("decided by ")

    records = [
        json.loads(line)
        for line in gencli("explain", trace, "--decided-by", "top_k", "--format", "jsonl").out.splitlines()
    ]
    assert records
    assert all("top_k" in record["decided_by"] for record in records)
    assert gencli("explain", trace, "--decided-by", "top_k").out.count("token ") >= len(records)


def test_a_trace_is_refused_beside_what_chooses_no_token(gencli, tmp_path):
    words = ("run", "-m", "fake", "--trace", tmp_path / "t", "hi")
    for others in (("--beams", "2"), ("--finish-open", "--json")):
        found = gencli(*words, *others)
        assert found.code == 2
        assert "--trace" in found.err
        assert others[0] in found.err
    assert "--trace-top is given, but no trace" in gencli("run", "-m", "fake", "--trace-top", "2", "hi").err


def test_lists_have_their_length_and_several_texts_names(gencli, tmp_path):
    file = tmp_path / "t.jsonl"
    assert (
        gencli("run", "-m", "fake", "--max-tokens", "2", "--trace", file, "--trace-top", "2", "hi").code == 0
    )
    tokens = [
        record for record in map(json.loads, file.read_text().splitlines()) if record["kind"] == "token"
    ]
    assert all(len(record["raw"]["top"]) == 2 for record in tokens)

    file = tmp_path / "t.jsonl"
    gencli("run", "-m", "fake", "-n", "2", "--max-tokens", "5", "--trace", file, "a")
    assert "== 1.1\n" in gencli("explain", file).out
    assert "== 1" not in gencli("explain", file, "--sample", "2").out


def test_another_file_is_refused(gencli, tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in gencli("explain", tmp_path / "x").err
    assert "cannot be read" in gencli("explain", tmp_path / "nothing").err

    file = tmp_path / "long"
    with file.open("wb") as made:
        made.truncate(40_000_000)  # one line of zeros
    found = gencli("explain", file)
    assert found.code == 6
    assert "more than 16,777,216 bytes" in found.err


def test_control_characters_of_a_token_do_nothing_on_a_terminal(gencli, trace):
    text = trace.read_text().replace('"text": "', '"text": "\\u001b[2J\\u202e')
    trace.write_text(text)
    for words in ((), ("--at", "2")):
        shown = gencli("explain", trace, *words).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
