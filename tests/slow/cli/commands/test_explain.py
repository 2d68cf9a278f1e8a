"""gencli explain: traces, prompts, kept logits, files of logits, lessons."""

import json

from tests.cli.commands.test_explain import WORDS, kept_trace, records, trace


def test_what_the_trace_does_not_have_is_refused(gencli, trace):
    for words, said in [
        (("--at", "99"), "--at is 99, but the text has 20 tokens"),
        (("--decided-by", "top_p"), "has no stage 'top_p'"),
        (("--at", "1", "--decided-by", "top_k"), "--at and --decided-by do not go together"),
        (("--run", "7"), "no such text"),
        (("--format", "xml"), "--format: 'xml' is not one of text, jsonl"),
        (("--keys",), "--keys needs a terminal"),
        (("--keys", "--at", "99"), "--at is 99"),
        (("--keys", "--decided-by", "top_k"), "--keys and --decided-by cannot be combined."),
        (("--keys", "--live"), "--keys and --live cannot be combined."),
        (("--live", "--at", "1"), "--live and --at cannot be combined."),
        (("--live", "--at", "0"), "--live and --at cannot be combined."),
        (("--live", "--format", "jsonl"), "--live and --format cannot be combined."),
    ]:
        gencli("explain", trace, *words).refused(said)


def test_a_prompt_is_explained_as_its_trace_is(gencli, kept_trace):
    file = kept_trace("5")
    for view in ((), ("--at", "3"), ("--decided-by", "top_k")):
        assert gencli("explain", *WORDS, *view).out == gencli("explain", file, *view).out
    assert gencli("explain", *WORDS, "--html", file.with_suffix(".html")).code == 0


def test_a_named_token_says_which_stage_removed_it(gencli, kept_trace):
    shown = records(gencli("explain", *WORDS, "--why", "#77", "--format", "jsonl"))
    assert len(shown) == 12
    for one in shown:
        assert one["id"] == 77
        if one["removed_by"]:
            assert (one["removed_by"], one["final"]["p"], one["final"]["rank"]) == ("top_k", 0, None)
        assert one["exact"]
        assert one["bound"] is None
    for keep in ("10000", "8"):
        again = records(gencli("explain", kept_trace(keep), "--why", "#77", "--format", "jsonl"))
        for one, right in zip(again, shown, strict=True):
            if one["bound"] is None:
                assert one["removed_by"] == right["removed_by"]
                assert one["raw"]["rank"] == right["raw"]["rank"]
            else:
                assert keep == "8"
                assert right["raw"]["logit"] <= one["bound"]


def test_a_replay_of_the_same_chain_is_the_text(gencli, kept_trace):
    file = kept_trace("10000")
    found = gencli("explain", file, "--replay", "--temperature", "2", "--top-k", "4")
    assert "another token at 0 of 12 places." in found.err
    assert found.out == gencli("explain", file).out
    other = gencli("explain", kept_trace("5"), "--replay", "--temperature", "2")
    assert "the kept logits do not decide it" in other.err


def test_a_hostile_head_ends_in_an_error(gencli, kept_trace):
    for change in [
        {"chain": 3}, {"chain": [3]}, {"draw": "x"}, {"prompt_ids": "x"}, {"eos_ids": [-1]}, {"model": 3},
    ]:  # fmt: skip
        file = kept_trace("5")
        first, rest = file.read_text().split("\n", 1)
        file.write_text(json.dumps({**json.loads(first), **change}) + "\n" + rest)
        found = gencli("explain", file, "--why", "#7")
        assert found.code in (2, 5, 6), change
        assert found.err.startswith("Error: "), change
