"""In bfloat16 a text may depend on its company: that is said, and a run goes on with the same company."""

from tests.batch.test_number_formats import ROWS, resumed, tiny


def test_in_bfloat16_a_run_does_not_go_on_in_other_company_unless_allowed(bench):
    cases = [
        (("--max-batch", "4"), "--max-batch was 2 and is 4"),
        (("--max-batch", "2", "--draft", "ngram"), "--draft was 'none' and is 'ngram'"),
    ]
    for flags, said in cases:
        bench = bench.fresh()
        refused = resumed(bench, "bfloat16", *flags)
        assert refused.code == 2, flags
        assert f"{said}. In this number format that may change texts." in refused.err, flags
        assert "continue anyway with --allow-other-batch" in refused.err, flags
        allowed = bench.run("--resume", "--allow-other-batch", *tiny("bfloat16", *flags))
        assert (allowed.code, len(bench.results)) == (0, len(ROWS)), flags


def test_in_bfloat16_a_run_goes_on_in_the_same_company(bench):
    assert resumed(bench, "bfloat16", "--max-batch", "2").code == 0


def test_in_float32_a_run_goes_on_in_any_company(bench):
    for flags in [("--max-batch", "4"), ("--draft", "ngram")]:
        bench = bench.fresh()
        assert resumed(bench, "float32", *flags).code == 0, flags


def test_a_planned_batch_size_is_kept_where_texts_depend_on_it(bench):
    planned = ("--kv-memory", "4M", "--max-tokens", "100")
    done = resumed(bench, "bfloat16", "--kv-memory", "16M", "--max-tokens", "100", begun=planned)
    assert (done.code, "samples run side by side" in done.err) == (0, False)
