"""gencli compare and gencli sweep: cells and sides are runs, forms, exit codes, refusals."""

import csv
import io
import json
import re

import pytest

from tests.config.conftest import here  # noqa: F401 - a fixture

ONE = ("--model", "fake", "--seed", "5", "--max-tokens", "12")


@pytest.fixture
def compare(gencli, here):  # noqa: F811
    """Call `compare(a, b, *words)` on the fake model, in an empty folder."""

    def call(a, b, *words, prompts=("the cat",), **kwargs):
        return gencli("compare", *ONE, "--a", a, "--b", b, *words, *prompts, **kwargs)

    return call


def test_both_texts_are_those_of_runs(compare, gencli):
    found = compare("top_k=60", "top_k=4", "--format", "json", prompts=("the cat", "a dog")).json
    for side, k in (("a", 60), ("b", 4)):
        run = gencli("run", *ONE, "--top-k", k, "the cat", "a dog", "--format", "jsonl").lines
        assert [text[side]["text"] for text in found["texts"]] == [record["text"] for record in run]


def test_each_side_keeps_what_its_preset_sets(gencli, here):  # noqa: F811
    here("short.yaml", "top_k: 60\nmax_tokens: 5\nn: 3\nformat: yaml\n")
    words = ("compare", "-m", "fake", "--seed", "5", "--a", "short.yaml", "--b", "top_k=60", "x")
    found = gencli(*words, "--format", "json")
    (text,) = found.json["texts"]
    assert (len(text["a"]["tokens"]), text["parted_at"]) == (5, 5)
    assert len(text["b"]["tokens"]) > 5
    assert "A: A comparison does not use n (short.yaml:3), format (short.yaml:4)." in found.err
    (text,) = gencli(*words, "--format", "json", "--max-tokens", "3").json["texts"]
    assert (len(text["a"]["tokens"]), text["equal"]) == (3, True)


def test_forms_have_both_texts_and_where_they_part(compare):
    page = compare("top_k=60", "temperature=0.8 | top_k=4").out
    assert page.startswith("A     top_k=60 (gumbel)\nB     temperature=0.8 | top_k=4 (gumbel)\nseed  5\n")
    assert "They part at token " in page
    assert "decided B" in page
    assert "\nplaces 12, " in re.sub(" +", " ", page)

    found = compare("top_k=60", "top_k=4", "--format", "jsonl", prompts=("the cat", "a dog")).lines
    assert [line["kind"] for line in found] == ["text", "text", "summary"]
    assert {line["id"] for line in found[:2]} == {"1", "2"}
    assert found[2]["places"] == sum(line["summary"]["places"] for line in found[:2])

    (text,) = compare("top_k=60", "top_k=4", "--format", "json").json["texts"]
    for place, token in zip(text["places"], text["a"]["tokens"], strict=True):
        assert place["a"] == token
        assert json.dumps(place["b"])


def test_a_trace_that_kept_too_little_or_has_no_tokenizer_tells_neither(gencli, tmp_path, monkeypatch):
    trace = tmp_path / "t.jsonl"
    gencli("run", *ONE, "the cat", "--trace", trace, "--keep-logits", "9")
    found = gencli("compare", "--trace", trace, "--b", "top_k=3", "--assert-equal")
    assert (found.code, "Too few logits are kept to decide" in found.err) == (7, True)
    assert gencli("compare", "--trace", trace, "--b", "top_k=3").code == 0
    assert "12, whose logits do not decide it" in found.out

    trace = tmp_path / "t.jsonl"
    gencli("run", *ONE, "the cat", "--trace", trace, "--keep-logits", "300")
    gencli("compare", "--trace", trace, "--b", 'ban=["e"]').refused(
        "B: ban works on texts", "--model names a tokenizer"
    )
    given = gencli("compare", "--trace", trace, "--b", 'ban=["e"]', "--model", "fake")
    assert given.code == 0
    monkeypatch.setenv("GENCLI_MODEL", "fake")
    assert gencli("compare", "--trace", trace, "--b", 'ban=["e"]').out == given.out
    monkeypatch.setenv("GENCLI_MODEL", "/nowhere")
    assert gencli("compare", "--trace", trace, "--b", 'ban=["e"]', "--model", "fake").out == given.out


def test_what_cannot_be_compared_is_refused_by_name(gencli, here):  # noqa: F811
    for a, b, said in [
        ("topk=3", "", "--a: There is no stage 'topk'."),
        ("", "top_k=x", "--b: top_k: k is "),
        ("", "nothing", "--b: There is no preset 'nothing'."),
        ("", "top_k", "Write the stage with a value, as in top_k=..."),
        ("compat:lama-cpp", "", "--a: There is no profile 'lama-cpp'."),
        ("", "none.yaml", "--b: There is no preset file none.yaml."),
        ("", "best.yaml", "--b: best_of (best.yaml:1) chooses among several texts"),
        ("", "beams.yaml", "--b: beams (beams.yaml:1) searches texts"),
        ("", 'ban:texts=["a"],rewind=true', "takes tokens back"),
        ("seed.yaml", "other.yaml", "both sides draw with one noise"),
        ("", "guided.yaml", "both sides have one prompt, model and guidance"),
        ("", "chat.yaml", "both sides have one prompt, model and guidance"),
    ]:
        for name, text in {
            "best": "best_of: 3", "beams": "beams: 3", "seed": "seed: 1", "other": "seed: 2",
            "guided": "guidance: 2", "chat": "chat: true",
        }.items():  # fmt: skip
            here(f"{name}.yaml", text)
        gencli("compare", "-m", "fake", "--a", a, "--b", b, "x").refused(said, code=(2, 3))


def test_a_wrong_command_line_is_refused(gencli, here):  # noqa: F811
    for words, said in [
        (("--a", "", "x"), "compare needs --b."),
        (("x",), "compare needs --a and --b."),
        (("--trace", "none.jsonl", "--b", "top_k=3"), "cannot be read"),
        (("--trace", "none.jsonl", "--b", "top_k=3", "--a", "top_p=1"), "--a has no effect"),
        (("--trace", "none.jsonl", "--b", "top_k=3", "--seed", "1"), "--seed has no effect"),
        (("--trace", "none.jsonl", "--b", "top_k=3", "x"), "A prompt has no effect"),
        (("--a", "", "--b", "", "--prompts", "none.txt"), "There is no file none.txt."),
        (("--a", "", "--b", "", "--prompts", "p.txt", "x"), "--prompts gives all prompts."),
        (("--a", "", "--b", "", "--prompts", "bytes.txt"), "bytes.txt:1: This is not UTF-8"),
        (("--a", "", "--b", "", "--prompts", "p.jsonl"), "p.jsonl:1: It has no text in the column prompt."),
        (("--a", "", "--b", "", "--prompts", "empty.txt"), "empty.txt has no prompt."),
        (("--a", "", "--b", "", "--max-tv", "2", "x"), "--max-tv is 2"),
    ]:
        here("p.txt", "x\n")
        here("empty.txt", "\n")
        here("p.jsonl", '{"prompt": 3}\n')
        here("bytes.txt", "").write_bytes(b"\xff\xfe\x00a"[:1] + b"\x80\n")
        gencli("compare", *words).refused(said)


SHARED = ("-m", "fake", "--seed", "4", "--max-tokens", "12")
AXES = ("--vary", "temperature=0.5:1.5:1", "--vary", "top_k=3,40")


def sweep(gencli, *words, code=0):
    found = gencli("sweep", *SHARED, *AXES, *words, "--format", "json")
    assert found.code == code, found.err
    return json.loads(found.out)


def test_first_tokens_come_from_one_forward_and_are_those_of_the_texts(gencli):
    first, whole = (
        sweep(gencli, *words, "the cat", "a dog") for words in (("--first",), ("--max-tokens", "1"))
    )
    for one, other in zip(first["cells"], whole["cells"], strict=True):
        assert [text["text"] for text in one["texts"]] == [text["text"] for text in other["texts"]]
        assert one["means"]["entropy"] == pytest.approx(other["means"]["entropy"], rel=1e-5)
    seeds = ("--vary", "seed=1:30:1", "--first", "--format", "csv", "the cat")
    lines = [*csv.DictReader(io.StringIO(gencli("sweep", *SHARED, *seeds).out))]
    assert len({line["text"] for line in lines}) > 1


def test_the_texts_are_shown_and_a_file_has_the_format_of_its_suffix(gencli, tmp_path):
    made = sweep(gencli, "the cat")
    shown = gencli("sweep", *SHARED, *AXES, "the cat").out
    for place, cell in enumerate(made["cells"], 1):
        values = " ".join(f"{key}={value}" for key, value in cell["values"].items())
        assert f"\n==> {place}: {values} <==\n{cell['texts'][0]['text']}\n" in shown
    for suffix, read in (("json", json.loads), ("jsonl", lambda text: [*map(json.loads, text.splitlines())])):
        assert gencli("sweep", *SHARED, *AXES, "-o", tmp_path / f"x.{suffix}", "the cat").code == 0
        written = read((tmp_path / f"x.{suffix}").read_text())
        assert (written if suffix == "json" else {**made, "cells": written}) == made
    for suffix in ("json", "txt"):
        words = ("-m", "fake", "--seed", "4", "--max-tokens", "5", "-o", tmp_path / f"y.{suffix}", "the cat")
        assert gencli("run", *words).code == 0
    assert json.loads((tmp_path / "y.json").read_text())["text"] + "\n" == (tmp_path / "y.txt").read_text()
    document = ("-m", "fake", "--json-schema", "a bool", "--seed", "1", "-o", tmp_path / "z.json", "the cat")
    assert gencli("run", *document).code == 0
    assert json.loads((tmp_path / "z.json").read_text()).keys() == {"a"}


def test_valid_texts_are_counted_and_a_stage_that_gives_way_is_said(gencli):
    found = gencli(
        "sweep", *SHARED, "--vary", "seed=1,2", "--choice", "yes", "--choice", "no", "--format", "json", "hi"
    )
    assert [cell["means"]["valid"] for cell in json.loads(found.out)["cells"]] == [1, 1]

    found = gencli("sweep", *SHARED, "--vary", "mirostat=1,2", "--top-k", "3", "hi")
    assert found.code == 0
    assert "--top-k is left out" in found.err


def test_what_a_sweep_cannot_do_is_refused(gencli):
    for words, said in [
        ((), "A sweep needs an option to vary"),
        (("--vary", "guidance=1,2", "--first"), "guidance has no effect"),
        (("--vary", "top_k=1", "--png", "x.png"), "--png draws one measure"),
        (("--vary", "top_k=1", "--finish-open", "--json"), "--finish-open"),
        (("--vary", "top_k=1", "--show", "beauty"), "not one of"),
        (("--vary", "top_k=1", "--color", "rank"), "There is no option --color"),
        (("--vary", "seed=1:1000:1", "-n", "1000"), "at most 100000"),
    ]:
        gencli("sweep", *SHARED, *words, "hi").refused(said)
