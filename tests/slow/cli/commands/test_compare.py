"""gencli compare: sides as chains, presets and profiles, its forms, its exit codes, what it refuses."""

from tests.cli.commands.test_compare import compare
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
        ("top_k=4", ("--assert-equal",), 6, "1 of 1 texts are not equal."),
        ("top_k=4", ("--max-tv", "0.1"), 6, "The total variation is above 0.1 at "),
        ("top_k=4", ("--max-tv", "1"), 0, ""),
        ("allowed=[5] | suppress=[5]", (), 6, "1 of 1 texts failed."),
        ("allowed=[5] | suppress=[5]", ("--max-tv", "1"), 6, "is above 1 at 12 of 12 places"),
    ]:
        found = compare("top_k=60", b, *words)
        assert (found.code, said in found.err) == (code, True), b
