"""`gencli bench` prints one record for each thing that is measured, as a line of a table or as JSON."""

from tests.cli.commands.test_bench import SAMPLER, report


def test_bench_sampler_has_a_line_for_each_chain_and_kind_of_logits(capsys):
    costs = report([*SAMPLER, "--logits", "both"], capsys)["records"]
    assert [cost["logits"] for cost in costs] == ["peaked"] * 4 + ["flat"] * 4
    assert all(
        cost["gencli_ms"] > 0 and cost["transformers_ms"] > 0 and cost["speedup"] > 0 for cost in costs
    )
