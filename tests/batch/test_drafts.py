"""Drafts in batches: by row, across a resume, with results that are the same."""

import json

from tests.batch.test_command import cut

ROWS = [{"prompt": f"abcabc {n % 3} abcabc"} for n in range(12)]


DRAFTS = ("--draft", "suffix", "--draft-tokens", "3")


def texts(bench):
    return [one["text"] for one in bench.results]


def plain_texts(bench):
    assert bench.run().code == 0
    found = texts(bench)
    bench.output.unlink()
    return found


def test_a_batch_with_drafts_is_the_batch_without(bench):
    bench.write(ROWS)
    expected = plain_texts(bench)
    done = bench.run(*DRAFTS, "--summary", bench.folder / "sum.json")
    assert done.code == 0
    assert texts(bench) == expected
    assert "tokens a forward" in done.err
    assert json.loads((bench.folder / "sum.json").read_text())["drafts"]["accepted"] > 0
    assert sum(sum(one["speculation"]["accepted"]) for one in bench.results) > 0


def test_rows_choose_for_themselves(bench):
    bench.write(ROWS)
    expected = plain_texts(bench)
    own = [{"draft": "none"}, {"draft": "ngram", "draft_tokens": 2}, {"draft_tokens": "auto"}, {}]
    bench.write([{**row, **own[i % 4]} for i, row in enumerate(ROWS)])
    assert bench.run(*DRAFTS).code == 0
    assert texts(bench) == expected
    drafters = [one["speculation"] and one["speculation"]["drafter"] for one in bench.results]
    assert drafters[:4] == [None, "ngram", "suffix", "suffix"]


def test_a_row_cannot_bring_a_model(bench):
    bench.write([{"prompt": "a", "draft": "tiny"}, {"prompt": "a"}])
    assert bench.run().code == 7
    assert "The drafter 'tiny' is not among those of this run" in bench.results[0]["error"]["message"]


def test_rows_are_verified_as_they_say(bench):
    bench.write(ROWS)
    expected = plain_texts(bench)
    lossy = {"verify": "lossy-threshold", "verify_threshold": 0.01}
    own = [{}, {"verify": "match"}, {"verify": "rejection"}, lossy]
    bench.write([{**row, **own[i % 4]} for i, row in enumerate(ROWS)])
    assert bench.run(*DRAFTS).code == 0
    same = [one == other for one, other in zip(texts(bench), expected, strict=True)]
    assert all(same[0::4] + same[1::4])
    assert not all(same[2::4])
    assert not all(same[3::4])


def test_drafts_may_change_when_a_run_goes_on(bench):
    bench.write(ROWS)
    whole = cut(bench, 5)
    assert bench.run("--resume", "--no-timings", *DRAFTS).code == 0
    assert bench.output.read_bytes() == whole
