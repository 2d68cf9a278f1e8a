"""--draft on the command line: the same text, what is said of it, and what is refused."""

import pytest

from gencli.core.events import Drafted, Finish, Timings
from gencli.results.run_results import draft_lines
from tests.cli.test_output import valid

PROMPT = "abc abd abc abd abc"


SHORT = ("--seed", "1", "--max-tokens", "40", "--ignore-eos")


FAILS = """
from dataclasses import dataclass

from processors import Params, Phase, Processor, param


@dataclass(frozen=True)
class SlowParams(Params):
    by: float = param(0.0, "How much.")


class Slow(Processor[SlowParams]):
    name = "slow"
    phase = Phase.ADJUST
    Params = SlowParams
    sequential = True

    def apply(self, logits, rows):
        return logits
"""


def test_the_record_counts_drafts_by_position(run):
    options = ("--draft", "ngram", "--draft-tokens", "3", "--format", "json")
    found = valid(run(PROMPT, *SHORT, *options).json)["speculation"]
    assert found["drafter"] == "ngram"
    assert 40 - sum(found["accepted"]) <= found["forwards"] <= 40
    assert found["tokens_per_forward"] == pytest.approx(40 / found["forwards"], abs=0.001)
    assert len(found["proposed"]) == len(found["accepted"]) <= 3
    assert all(a <= p for a, p in zip(found["accepted"], found["proposed"], strict=True))
    record = valid(run(PROMPT, "-n", "2", *SHORT, *options).json)
    assert len(record["speculation"]) == 2
    assert valid(run(PROMPT, *SHORT, "--format", "json").json)["speculation"] is None


def test_a_stage_that_needs_every_outcome_takes_no_drafts_and_is_named(run, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(FAILS)
    options = ("--plugin", str(path), "--stage", "slow=1", "--draft", "ngram", "--draft-tokens", "2")
    found = run(PROMPT, *SHORT, *options)
    assert "Drafts (ngram): none were made." in found.err
    assert "The stage slow needs each token before the next, so its texts took no drafts." in found.err
    record = valid(run(PROMPT, *SHORT, *options, "--format", "json").json)["speculation"]
    assert (record["held_by"], record["proposed"]) == ("slow", [])


def test_what_drafting_takes_and_gains_is_said(run):
    for seconds, is_said in [(0.9, False), (1.1, True)]:
        drafted = Drafted(10, (10,), (10,), draft_seconds=seconds, verify_seconds=1.0)
        finish = Finish("1", 0, "", "eos", None, None, 3, 20, Timings(0, 0, 0), drafted=drafted)
        assert any("leave out `draft`" in line for line in draft_lines([finish], "x")) is is_said, seconds

    for plain, seconds, said in [
        (3, 0.3, "1.60 times plain steps (3 timed)."),
        (3, 0.18, "0.96 times plain"),
        (2, 0.1, "rest 1.50 s."),
    ]:
        drafted = Drafted(14, (6,), (6,), 0.0, 1.5, timed=24, plain=plain, plain_seconds=seconds)
        finish = Finish("1", 0, "", "eos", None, None, 3, 24, Timings(0, 0, 0), drafted=drafted)
        lines = [*draft_lines([finish], "x")]
        assert said in lines[0], plain
        assert any("leave out `draft`" in line for line in lines) is ("0.96" in said), plain

    options = ("--draft", "ngram", "--format", "json")
    found = valid(run(PROMPT, "--seed", "1", "--max-tokens", "100", "--temperature", "0", *options).json)
    assert found["speculation"]["speedup"] > 0


def test_what_cannot_be_is_refused(run):
    for options, code, said in [
        (("--draft-tokens", "3"), 2, "--draft-tokens is given, but there is no drafter"),
        (("--draft-min-p", "0.5"), 2, "--draft-min-p is given, but there is no drafter"),
        (("--draft", "ngram", "--draft-tokens", "0"), 2, "--draft-tokens is 0, but has to be a number >= 1"),
        (("--draft", "ngram", "--draft-tokens", "many"), 2, "'many' is neither a whole number nor auto"),
        (("--draft", "ngram", "--draft-min-p", "2"), 2, "--draft-min-p is 2"),
        (("--draft", ""), 2, "--draft is empty"),
        (("--draft", "tiny-draf"), 5, "Did you mean 'tiny-draft'?"),
        (("--draft", "early-exit"), 2, "the model fake:258:0 has no layers"),
        (("--draft", "early-exit:x"), 2, "'x' is no number of layers"),
    ]:
        found = run(PROMPT, *SHORT, *options)
        assert found.code == code, options
        assert said in found.err, options

    for options, said in [
        (("--verify", "rejection"), "--verify is given, but there is no drafter"),
        (("--verify-threshold", "0.5"), "--verify-threshold is given, but there is no drafter"),
        (("--draft", "ngram", "--verify", "typical"), "--verify: 'typical' is not one of match, rejection"),
        (("--draft", "ngram", "--verify-threshold", "0.5"), "is for lossy-threshold, but --verify is match"),
        (
            ("--draft", "ngram", "--verify", "rejection", "--verify-threshold", "0.5"),
            "--verify-threshold is for lossy-threshold, but --verify is rejection",
        ),
        (
            ("--draft", "ngram", "--verify", "lossy-threshold", "--verify-threshold", "0"),
            "--verify-threshold is 0",
        ),
    ]:
        found = run(PROMPT, *SHORT, *options)
        assert (found.code, said in found.err) == (2, True), found.err


def test_a_preset_may_say_how_to_draft_and_verify(run, tmp_path):
    preset = tmp_path / "lax.yaml"
    preset.write_text("draft: ngram\ndraft_tokens: 2\nverify: lossy-threshold\nverify_threshold: 0.05\n")
    lax = run(PROMPT, *SHORT, "--preset", preset)
    matched = run(PROMPT, *SHORT, "--preset", preset, "--verify", "match")
    assert lax.out != matched.out == run(PROMPT, *SHORT).out

    preset = tmp_path / "fast.yaml"
    preset.write_text("draft: ngram\ndraft_tokens: 2\n")
    assert "Drafts (ngram)" in run(PROMPT, *SHORT, "--preset", preset).err
    preset.write_text("draft: suffix\ndraft_tokens: auto\ndraft_min_p: 0.1\n")
    assert "Drafts (suffix)" in run(PROMPT, *SHORT, "--preset", preset).err
