"""Drafts in batches: by row, across a resume, with results that are the same."""

from tests.batch.test_command import cut
from tests.batch.test_drafts import DRAFTS, ROWS


def test_where_drafts_decide_a_run_goes_on_with_the_same(bench):
    bench.write([{**row, "verify": "rejection"} for row in ROWS])
    whole = cut(bench, 5, *DRAFTS)
    said = bench.refused("--resume", "--no-timings", "--draft", "suffix", "--draft-tokens", "5")
    assert "--draft-tokens was 3 and is 5" in said
    assert bench.run("--resume", "--no-timings", *DRAFTS, "--max-batch", "2").code == 0
    assert bench.output.read_bytes() == whole
