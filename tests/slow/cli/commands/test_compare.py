"""gencli compare and gencli sweep: cells and sides are runs, forms, exit codes, refusals."""

import json
import math

import pytest

from tests.cli.commands.test_compare import AXES, ONE, SHARED, compare, sweep
from tests.config.conftest import here


def test_a_chain_equals_the_preset_or_profile_that_is_written_so(compare, here):
    here("mine.yaml", "top_k: 40\ntop_p: 0.9\n")
    found = compare(
        "top_k=40 | top_p=0.9", "mine.yaml", "--assert-equal", "--max-tv", "0", "--format", "json"
    )
    assert (found.code, found.err) == (0, "")
    sums = found.json["summary"]
    assert (sums["equal"], sums["places"], sums["parted"], sums["tv_max"]) == (1, 12, 0, 0)

    here("same.yaml", "top_k: 50\n")
    assert compare("compat:hf", "same.yaml", "--assert-equal").code == 0
    assert compare("compat:llama-cpp", "same.yaml", "--assert-equal").code == 6


def test_prompts_come_from_a_file_of_lines_or_rows(compare, here):
    here("a.txt", "the cat\na dog\n")
    here("a.jsonl", '{"prompt": "the cat"}\n{"prompt": "a dog"}\n')
    made = [
        compare("top_k=60", "top_k=4", "--format", "json", *words, prompts=prompts).json
        for words, prompts in (
            ((), ("the cat", "a dog")),
            (("--prompts", "a.txt"), ()),
            (("--prompts", "a.jsonl"), ()),
        )
    ]
    assert made[0] == made[1] == made[2]


def test_exit_codes_say_what_holds(compare):
    for b, words, code, said in [
        ("top_k=60", ("--assert-equal", "--max-tv", "0"), 0, ""),
        ("top_k=4", (), 0, ""),
        ("top_k=4", ("--assert-equal",), 6, "1 of 1 text is not equal."),
        ("top_k=4", ("--max-tv", "0.1"), 6, "The total variation is above 0.1 at "),
        ("top_k=4", ("--max-tv", "1"), 0, ""),
        ("allowed=[5] | suppress=[5]", (), 6, "1 of 1 text failed."),
        ("allowed=[5] | suppress=[5]", ("--max-tv", "1"), 6, "is above 1 at 12 of 12 places"),
    ]:
        found = compare("top_k=60", b, *words)
        assert (found.code, said in found.err) == (code, True), b


def test_a_grammar_and_guidance_hold_for_both_sides_and_a_whole_chain_alone(compare, monkeypatch):
    words = ("--regex", "[a-z ]{8}", "--guidance", "1.5", "--negative", "dog", "--format", "json")
    found = compare("temperature=1.5", "top_k=4", *words)
    (text,) = found.json["texts"]
    for side in "ab":
        assert len(text[side]["text"]) == 8
        assert all(char.islower() or char == " " for char in text[side]["text"])
    assert [place["unmeasured"] for place in text["places"]] == [None] * len(text["places"])

    plain = compare("top_k=60", "top_k=4", "--format", "json")
    monkeypatch.setenv("GENCLI_TEMPERATURE", "0.2")
    found = compare("top_k=60", "top_k=4", "--format", "json")
    assert found.json == plain.json
    assert "'top_k=60' is the whole chain, without GENCLI_TEMPERATURE." in found.err


def test_the_result_can_go_to_a_file_or_a_page(compare, tmp_path, gencli):
    plain, done = compare("top_k=60", "top_k=4"), compare("top_k=60", "top_k=4", "-o", tmp_path / "out")
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / "out").read_text() == plain.out
    assert compare("top_k=60", "top_k=4", "--html", tmp_path / "page.html") == plain
    assert "<html" in (tmp_path / "page.html").read_text()
    gencli("run", *ONE, "the cat", "--trace", tmp_path / "t.jsonl", "--keep-logits", "300")
    found = gencli(
        "compare", "--trace", tmp_path / "t.jsonl", "--b", "top_k=4", "--html", tmp_path / "t.html"
    )
    assert (found.code, "<html" in (tmp_path / "t.html").read_text()) == (0, True)
    compare("top_k=60", "top_k=4", "--html", tmp_path / "two.html", prompts=("a", "b")).refused(
        "--html shows one prompt"
    )


def test_two_models_of_one_vocabulary_are_compared(gencli):
    words = (
        "--a", "top_k=40", "--b", "top_k=40", "--seed", "3", "--max-tokens", "9", "Once upon a time", "x",
    )  # fmt: skip
    one = gencli("compare", "-m", "tiny", *words, "--format", "json").json
    same = gencli("compare", "-m", "tiny", "--model-b", "tiny", *words, "--format", "json").json
    assert same["summary"].pop("model_b") == "tiny"
    assert same == one
    other = gencli("compare", "-m", "tiny", "--model-b", "tiny-draft", *words, "--format", "json").json
    assert other["summary"]["tv_max"] > 0.1
    draft = (
        "run", "-m", "tiny-draft", "--seed", "3", "--top-k", "40", "--max-tokens", "9", "--format", "jsonl",
    )  # fmt: skip
    draft = gencli(*draft, *words[-2:]).lines
    assert [text["b"]["text"] for text in other["texts"]] == [record["text"] for record in draft]

    gencli("compare", "-m", "tiny", "--model-b", "fake", "--a", "", "--b", "", "x").refused(
        "tiny and fake have different vocabularies: token 0 is ", code=5
    )


def test_the_text_of_a_cell_is_that_of_a_run(gencli):
    found = sweep(gencli, "-n", "2", "the cat", "a dog")
    assert [cell["values"] for cell in found["cells"]] == [
        {"temperature": heat, "top_k": count} for heat in ("0.5", "1.5") for count in ("3", "40")
    ]
    for cell in found["cells"]:
        flags = ("--temperature", cell["values"]["temperature"], "--top-k", cell["values"]["top_k"])
        run = gencli("run", *SHARED, *flags, "-n", "2", "--format", "json", "the cat", "a dog")
        texts = [text for row in json.loads(run.out) for text in row["texts"]]
        assert [one["text"] for one in cell["texts"]] == texts


def test_measures_are_those_of_the_trace(gencli, tmp_path):
    cell = sweep(gencli, "the cat")["cells"][3]
    trace = tmp_path / "t.jsonl"
    gencli("run", *SHARED, "--temperature", "1.5", "--top-k", "40", "--trace", trace, "the cat")
    records = [json.loads(line) for line in trace.read_text().splitlines()][1:-1]
    count, means = len(records), cell["means"]
    assert means["tokens"] == count
    assert means["entropy"] == pytest.approx(
        sum(one["final"]["entropy"] for one in records) / count, rel=1e-4
    )
    assert means["decided"] == sum(bool(one["decided_by"]) for one in records) / count
    surprise = sum(one["surprise"] for one in records)
    assert means["logprob"] == pytest.approx(-surprise * math.log(2), rel=1e-4)
    assert means["alive"] == 40
    assert means["valid"] is None


def test_a_grid_shows_one_measure_and_its_page_has_every_cell(gencli, tmp_path):
    lines = gencli("sweep", *SHARED, *AXES, "--show", "entropy", "the cat").out.splitlines()
    assert lines[1].split() == ["temperature", "top_k", "3", "top_k", "40"]
    assert [line.split()[0] for line in lines[2:]] == ["0.5", "1.5"]
    assert lines[3].endswith("███")
    table = gencli("sweep", *SHARED, *AXES, "the cat").out.splitlines()
    assert len(table) == 5 + 3 * 4  # and a blank line, a label and a text for each cell
    assert table[0].startswith("temperature  top_k  tokens  entropy")

    file = tmp_path / "grid.html"
    assert gencli("sweep", *SHARED, *AXES, "--html", file, "the cat").code == 0
    assert file.read_text().startswith("<!doctype html>")
