"""gencli quantize, and runs with quantized weights: one text in any company."""

from tests.cli.commands.test_quantize import PROMPTS

COMPANIES = [
    (*PROMPTS, "--draft", "ngram", "--max-batch", "2"),
    PROMPTS,
    (PROMPTS[0], "--draft", "suffix"),
    (PROMPTS[0], "--draft", "tiny-draft"),
    (PROMPTS[0], "--draft", "early-exit:2"),
]


def assert_the_text_is_that_alone(gencli, companies):
    for quantize in ("int8", "int4"):
        words = ("run", "--quantize", quantize, "-t", "0", "--max-tokens", "40", "--format", "jsonl")
        alone = gencli(*words, PROMPTS[0]).json["text"]
        for company in companies:
            beside = {one["id"]: one["text"] for one in gencli(*words, *company).lines}
            assert beside["1"] == alone, (quantize, company)


def test_a_text_does_not_depend_on_its_company(gencli):
    assert_the_text_is_that_alone(gencli, COMPANIES[:1])
