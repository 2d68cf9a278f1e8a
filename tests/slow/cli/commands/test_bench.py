"""A benchmark prints one record for each thing that is measured, as a line of a table or as JSON."""

from gencli.cli.app import main
from tests.cli.commands.test_bench import SAMPLER, SPECULATE, STAGES, bench, report


def test_bench_sampler_has_a_line_for_each_chain_and_kind_of_logits(capsys):
    costs = report([*SAMPLER, "--logits", "both"], capsys)["records"]
    assert [cost["logits"] for cost in costs] == ["peaked"] * 4 + ["flat"] * 4
    assert all(
        cost["gencli_ms"] > 0 and cost["transformers_ms"] > 0 and cost["speedup"] > 0 for cost in costs
    )


def test_bench_refuses_what_it_cannot_measure(capsys):
    assert bench("grammar", "--back-end", "nothing", "--steps", "1") != 0
    assert "nothing" in capsys.readouterr().err

    for wrong in [["--predict"], ["--predict", "--card", "GTX"], ["--shape", "9B"]]:
        assert bench("gpu", *wrong) == 2, wrong

    assert bench("run", "--gguf", "any.gguf", "--rows", "2") == 2
    assert "--rows 1" in capsys.readouterr().err

    assert bench(*SAMPLER, "--chain", "temperature=0.7 | ban=fox") == 2
    assert "ban" in capsys.readouterr().err

    assert bench(*STAGES, "typo_k") == 2
    assert "'typo_k'" in capsys.readouterr().err

    for options, said in [
        (["--draft-tokens", "many"], "'many' is no list of numbers"),
        (["--rows", "0"], "numbers from 1 to 65536"),
        (["--draft-tokens", "8..0"], "'8..0' runs backwards.\nHint: Write 0..8."),
        (["--draft", "none"], "nothing to measure"),
        (["--prompts", "nowhere.jsonl"], "cannot be read"),
    ]:
        assert bench(*SPECULATE, *options) == 2, options
        assert said in capsys.readouterr().err, options
