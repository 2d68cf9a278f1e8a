"""gencli quantize, and runs with quantized weights: one text in any company."""

import json

import pytest

from gencli.models.decoder.products.coded_weights import Int8PackProduct, int8_kernels
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


@pytest.fixture(scope="module", params=["8", "4"])
def folder(request, tmp_path_factory):
    from gencli.cli.app import main

    target = tmp_path_factory.mktemp("quantized") / "tiny"
    assert main(["quantize", "tiny", str(target), "--bits", request.param, "-q"]) == 0
    return target


def test_the_folder_runs_as_the_model_with_the_option(gencli, folder):
    bits = json.loads((folder / "config.json").read_text())["quantization_config"]["bits"]
    words = ("-t", "0", "--max-tokens", "30", PROMPTS[0])
    assert gencli("run", "-m", folder, *words).out == gencli("run", "--quantize", f"int{bits}", *words).out
    shown = gencli("models", "show", folder, "--format", "json").json
    assert (shown["quantization"], shown["dtype"]) == (f"int{bits}", {8: "I8", 4: "U8"}[bits])


def test_guidance_beams_and_grammars_run_with_quantized_weights(gencli):
    words = ("run", "--quantize", "int8", "--seed", "1", "--max-tokens", "12", PROMPTS[0])
    for more in (("--guidance", "2", "--negative", "sad"), ("--beams", "3"), ("--regex", " [a-z]+")):
        assert gencli(*words, *more).code == 0


def test_rounded_activations_are_said_once(gencli):
    run = ("run", "-m", "tiny-draft", "--seed", "1", "--max-tokens", "2", "Once")
    said = int(int8_kernels()[0] is not Int8PackProduct)  # elsewhere they are bfloat16
    for words, count in ((("int8",), said), (("int8", "-n", "2"), said), (("int8", "-q"), 0), (("int4",), 0)):
        assert gencli(*run, "--quantize", *words).err.count("one scale for each row") == count, words
