"""Rows of files to score: by the machinery of batches, with their resume, shards, templates and totals."""

import io
import json
import math
import random
import sys

import numpy as np
import pytest

from gencli.batch.journal import Journal
from gencli.batch.score_files import Sums
from gencli.cli.app import main
from gencli.scoring.text_scores import Totals

ROWS = [
    {"text": "abc abc", "lang": "x", "id": "one"},
    {"text": "cab bca", "lang": "y"},
    {"context": "ab", "continuation": "c", "lang": "x"},
    {"context": "ab", "choices": ["c", "dd"], "lang": "y"},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "lang": "x"},
    {"text": "bbb", "lang": "x"},
]


@pytest.fixture
def score(tmp_path, capfd, monkeypatch):
    """Call `gencli score` on rows; return code, stdout and stderr."""
    source = tmp_path / "in.jsonl"

    def call(*arguments, rows=ROWS):
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        code = main(["score", str(source), "--model", "fake", *map(str, arguments)])
        return (code, *capfd.readouterr())

    return call


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_row_has_its_score_in_the_order_of_the_input(score):
    code, out, _ = score("--format", "jsonl")
    found = lines(out)
    assert code == 0
    assert [one["id"] for one in found] == ["one", "1", "2", "3", "4", "5"]
    assert [one["index"] for one in found] == [*range(6)]
    assert len(found[3]["choices"]) == 2
    assert found[4]["text"] == "b"


def test_an_interrupted_run_goes_on_and_has_the_bytes_of_a_whole_one(score, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    assert score("-o", whole, "--seed", "1")[0] == 0
    append = Journal.append

    def dying(self, outcome, **more):
        if len(self._rows) == 3:
            raise KeyboardInterrupt
        append(self, outcome, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", dying)
        score("-o", parts, "--seed", "1")
    assert not parts.exists()
    code, _, err = score("-o", parts, "--resume", "--mode", "processed")
    assert (code, "`mode`" in err or "--mode" in err) == (2, True)  # other numbers
    code, _, err = score("-o", parts, "--resume")
    assert (code, "3 from before" in err) == (0, True)
    assert parts.read_bytes() == whole.read_bytes()
    assert "6 rows" not in err.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "parts.jsonl", "whole.jsonl"]


def test_shards_together_are_the_run(score):
    whole = lines(score("--format", "jsonl")[1])
    halves = [lines(score("--format", "jsonl", "--shard", f"{i}/2")[1]) for i in range(2)]
    assert sorted([*halves[0], *halves[1]], key=lambda one: one["index"]) == whole


def test_a_template_makes_the_text_or_the_context(score):
    rows = [{"q": "a b", "choices": ["c", "d"]}, {"q": "cab"}, {"q": "ab", "continuation": "c"}]
    found = lines(score("--template", "Q: {{ q }}", "--format", "jsonl", rows=rows)[1])
    plain = [
        {"context": "Q: a b", "choices": ["c", "d"]},
        {"text": "Q: cab"},
        {"context": "Q: ab", "continuation": "c"},
    ]
    assert found == lines(score("--format", "jsonl", rows=plain)[1])
    by_column = lines(score("--prompt-column", "q", "--format", "jsonl", rows=rows[1:2])[1])
    assert by_column == lines(score("--format", "jsonl", rows=[{"text": "cab"}])[1])


def test_totals_by_group_are_said_and_in_the_summary(score, tmp_path):
    summary = tmp_path / "sum.json"
    _, out, _ = score("--group-by", "lang", "--summary", summary, "--seed", "3")
    assert "x: perplexity per token" in out
    assert "y: perplexity per token" in out
    assert "x: continuations: " in out
    totals = {(one["kind"], one["group"]): one for one in json.loads(summary.read_text())["totals"]}
    assert [totals["texts", name]["rows"] for name in "xy"] == [2, 1]
    low, high = totals["texts", "x"]["perplexity_interval"]
    assert low < totals["texts", "x"]["perplexity"] < high
    assert "convention lm-eval" in json.loads(summary.read_text())["convention"]


def test_a_row_may_have_a_chain_of_its_own_in_the_mode_processed(score):
    rows = [
        {"text": "abcab", "options": {"top_k": 1}},
        {"text": "abcab", "options": {"stages": {"ban": {"texts": ["ca"]}}}},
        {"text": "abcab"},
        {"text": "abcab", "options": {"n": 2}},
    ]
    code, out, _ = score("--mode", "processed", "--format", "jsonl", rows=rows)
    one, two, three, four = lines(out)
    assert code == 7
    assert one["banned"] == 5 - one["scored"] > 0
    assert two["banned"] == 1
    assert ("banned" in three, three["logprob"]) == (
        False,
        pytest.approx(lines(score("--format", "jsonl", rows=rows[2:3])[1])[0]["logprob"], abs=1e-4),
    )
    assert "n is not an option" in four["error"]["message"]
    _, out, _ = score("--mode", "processed", "--top-k", "1", rows=rows[2:3])
    assert " banned\n" in out


def test_what_has_no_effect_is_refused(score):
    cases = [
        (["--top-k", "3"], "--top-k"), (["--tokens", "1"], "--tokens"), (["--stride", "3"], "--stride"),
        (["--format", "texts"], "texts"), (["--resume"], "--output"),
    ]  # fmt: skip
    for flags, said in cases:
        code, _, err = score(*flags)
        assert (code, said in err) == (2, True), flags
    code, out, _ = score("--format", "jsonl", rows=[{"text": "a", "options": {"top_k": 1}}, {"text": "b"}])
    assert code == 7
    assert "processed" in lines(out)[0]["error"]["message"]


def test_values_of_presets_that_have_no_part_are_named(score, tmp_path):
    preset = tmp_path / "mine.yaml"
    preset.write_text("top_k: 3\nn: 2\n")
    _, _, err = score("--preset", preset)
    assert "Scores do not use" in err
    assert "top_k" in err
    _, _, err = score("--preset", preset, "--mode", "processed")
    assert "top_k" not in err
    assert "n (" in err


def record(values, *, num_bytes=40, words=7, **more):
    return {**Totals.of(values, num_bytes=num_bytes, words=words).record(), **more}


def random_records(count=40):
    dice = random.Random(3)
    return [record([-dice.expovariate(0.4) for _ in range(dice.randint(3, 30))]) for _ in range(count)]


def test_groups_and_kinds_are_added_up_apart_and_errors_not_at_all():
    sums = Sums(samples=0, seed=0)
    for one in (
        record([-1.0, -2.0], group="a"),
        record([-3.0], group="b"),
        record([-5.0], group="a"),
        record([-4.0], group="a", greedy=True),
        {"error": {"type": "UsageError", "message": "x"}, "group": "a"},
        {"choices": [], "group": "a"},
    ):
        sums.add(one)
    found = {(one["kind"], one["group"]): one for one in sums.records()}
    assert {key: (one["logprob"], one["scored"], one["rows"]) for key, one in found.items()} == {
        ("texts", "a"): (-8.0, 3, 2),
        ("texts", "b"): (-3.0, 1, 1),
        ("continuations", "a"): (-4.0, 1, 1),
    }
    assert found["texts", "a"]["squares"] == 30
    assert found["texts", "a"]["perplexity_interval"] is None


def test_a_record_reads_back_as_its_totals():
    for values in ([-1.0, -2.5], [-1.0, -math.inf, -2.0]):
        totals = Totals.of(values, num_bytes=9, words=2)
        assert Totals.of_record(totals.record()) == totals


def test_a_banned_token_leaves_its_group_without_a_sum():
    sums = Sums(samples=100, seed=0)
    for values in ([-1.0, -math.inf], [-1.0, -2.0]):
        sums.add(record(values))
    (found,) = sums.records()
    assert (found["logprob"], found["perplexity"], found["banned"], found["possible"]) == (
        None, None, 1, -4.0,
    )  # fmt: skip
    assert found["perplexity_interval"] is None
    (line,) = sums.lines()
    assert "3 tokens of 2 rows; 1 more token is banned" in line


def test_intervals_are_those_of_the_plain_bootstrap_and_depend_on_the_seed_only():
    found = random_records()
    intervals = []
    for seed in (1, 1, 2):
        sums = Sums(samples=2000, seed=seed)
        for one in found:
            sums.add(one)
        intervals.append(sums.records()[0]["perplexity_interval"])
    assert intervals[0] == intervals[1] != intervals[2]
    dice, values = random.Random(9), []
    for _ in range(2000):
        drawn = dice.choices(found, k=len(found))
        values.append(math.exp(-sum(one["logprob"] for one in drawn) / sum(one["scored"] for one in drawn)))
    assert intervals[0] == pytest.approx([float(x) for x in np.percentile(values, (2.5, 97.5))], rel=0.02)
