"""tokenize, doctor, completion, and watermarks with gencli detect."""

import os

import pytest
import yaml

from tests.cli.commands.test_tools import (
    KEY,
    OFFERED,
    SAYS,
    SPELLED,
    assert_names_are_offered_without_anything_heavy,
    marked,
)


def test_completion_offers_names_without_anything_heavy(tmp_path):
    assert_names_are_offered_without_anything_heavy(OFFERED[:1], tmp_path)


def left(folder):
    """The bytes of all files that runs left, but for the keys themselves."""
    for path, _, files in os.walk(folder):
        if not path.endswith("keys"):
            for file in files:
                with open(os.path.join(path, file), "rb") as stream:
                    yield stream.read()


def assert_no_output_and_no_file_has_the_key(gencli, marked, tmp_path, kind):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "temperature": 0.7}\n')
    (tmp_path / "mine.yaml").write_text(f"watermark: {kind}\nwatermark_key: keys/mark.key\n")
    mark = marked(kind)
    found = [
        gencli("run", *SAYS, *mark, "--log", "--stats", "--debug", "--format", "json", "x"),
        gencli("run", *SAYS, *mark, "--show-chain", "x"),
        gencli("run", *SAYS, *mark, "--show-chain", "--format", "json", "x"),
        gencli("run", *SAYS, "--preset", "./mine.yaml", "--log", "x"),
        gencli("batch", "rows.jsonl", "-o", "out.jsonl", "--resume", *SAYS, *mark),
        gencli("batch", "rows.jsonl", "-o", "other.jsonl", *SAYS, *marked(kind, "other.key"), "--dry-run"),
        gencli("config", "show", "--preset", "./mine.yaml"),
        gencli("config", "export", "-o", "exported.yaml", "--preset", "./mine.yaml"),
        gencli("config", "lint", "mine.yaml"),
        gencli("chat", *SAYS, *mark, stdin=b"hi\n/show\n/chain\n/settings\n"),
        gencli("log"),
        gencli("log", "show", "1"),
        gencli("log", "show", "1", "--format", "json"),
        gencli("log", "rerun", "1"),
        gencli("detect", "--model", "fake", *mark, "--format", "json", "abcabc" * 30),
        gencli("detect", "--model", "fake", *mark, "--window", "20", "abcabc" * 30),
        gencli("stages", "show", "gumbel_mark" if kind == "gumbel" else kind),
        gencli("run", *SAYS, "--stage", f"{kind}:key={KEY}", "x"),
        gencli("run", *SAYS, *mark, "--beams", "2", "--temperature", "0.5", "x"),
    ]
    assert [one.code for one in found[:5]] == [0] * 5, found
    assert found[13].code == 0, found[13]
    told = "".join(one.out + one.err for one in found).encode() + b"".join(left(tmp_path))
    assert not [text for text in SPELLED if text.encode() in told], kind
    assert found[1].out.count('key="#') == 1, "a fingerprint stands for it"


def test_no_output_and_no_file_has_the_key(gencli, marked, tmp_path):
    assert_no_output_and_no_file_has_the_key(gencli, marked, tmp_path, "gumbel")


@pytest.mark.parametrize("kind", ["kgw", "synthid", "gumbel"])
def test_detect_tells_a_marked_text_from_another(gencli, marked, tmp_path, kind):
    flat = ("--model", "fake", "--temperature", "3", "--max-tokens", "400", "--ignore-eos", "--seed", "1")
    letters = ("--allow-ids", ",".join(map(str, range(97, 123))))
    if kind == "kgw":  # few pairs of letters are likely, so they need a strong bias
        for place, file in enumerate(("mark.key", "other.key")):
            (tmp_path / "keys" / file).write_text(f"key: {KEY + place}\nbias: 8\n")
    made = gencli("run", *flat, *letters, *marked(kind), "-q", "-o", "made.txt", "x")
    assert made.code == 0, kind
    asked = ("detect", "--model", "fake", *marked(kind), "--format", "json")
    found = gencli(*asked, "made.txt")
    assert (found.code, found.json["verdict"]) == (0, "marked"), found
    assert found.json["log10_p_value"] < -3, kind
    text = (tmp_path / "made.txt").read_text().rstrip("\n")
    assert gencli(*asked, text).out == found.out == gencli(*asked, "-", stdin=text.encode()).out, kind
    assert yaml.safe_load(gencli(*asked[:-1], "yaml", text).out) == found.json, kind
    other = gencli("detect", "--model", "fake", *marked(kind, "other.key"), "made.txt")
    assert (other.code, other.out.splitlines()[0]) == (6, "not marked"), other
    short = gencli("detect", "--model", "fake", *marked(kind), "abc")
    assert short.code == 7, kind
    assert short.out.startswith("not enough tokens: "), kind
