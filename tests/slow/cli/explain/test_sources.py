"""gencli explain on prompts, kept logits, files of logits, and lessons."""

import json

from tests.cli.explain.test_sources import WORDS, records, trace


def test_a_prompt_is_explained_as_its_trace_is(gencli, trace):
    file = trace("5")
    for view in ((), ("--at", "3"), ("--decided-by", "top_k")):
        assert gencli("explain", *WORDS, *view).out == gencli("explain", file, *view).out
    assert gencli("explain", *WORDS, "--html", file.with_suffix(".html")).code == 0


def test_a_named_token_says_which_stage_removed_it(gencli, trace):
    shown = records(gencli("explain", *WORDS, "--why", "#77", "--format", "jsonl"))
    assert len(shown) == 12
    for one in shown:
        assert one["id"] == 77
        if one["removed_by"]:
            assert (one["removed_by"], one["final"]["p"], one["final"]["rank"]) == ("top_k", 0, None)
        assert one["exact"]
        assert one["bound"] is None
    for keep in ("10000", "8"):
        again = records(gencli("explain", trace(keep), "--why", "#77", "--format", "jsonl"))
        for one, right in zip(again, shown, strict=True):
            if one["bound"] is None:
                assert one["removed_by"] == right["removed_by"]
                assert one["raw"]["rank"] == right["raw"]["rank"]
            else:
                assert keep == "8"
                assert right["raw"]["logit"] <= one["bound"]


def test_a_replay_of_the_same_chain_is_the_text(gencli, trace):
    file = trace("10000")
    found = gencli("explain", file, "--replay", "--temperature", "2", "--top-k", "4")
    assert "another token at 0 of 12 places." in found.err
    assert found.out == gencli("explain", file).out
    other = gencli("explain", trace("5"), "--replay", "--temperature", "2")
    assert "the kept logits do not decide it" in other.err


def test_a_hostile_head_ends_in_an_error(gencli, trace):
    for change in [
        {"chain": 3}, {"chain": [3]}, {"draw": "x"}, {"prompt_ids": "x"}, {"eos_ids": [-1]}, {"model": 3},
    ]:  # fmt: skip
        file = trace("5")
        first, rest = file.read_text().split("\n", 1)
        file.write_text(json.dumps({**json.loads(first), **change}) + "\n" + rest)
        found = gencli("explain", file, "--why", "#7")
        assert found.code in (2, 5, 6), change
        assert found.err.startswith("Error: "), change
