"""gencli quantize, and runs with quantized weights: one text in any company."""

import json

import pytest

PROMPTS = ("Once upon a time", "One winter, a fox", "Question: Is Brindle a town?\nAnswer:")


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


def test_what_does_not_go_is_refused_by_name(gencli):
    for words, said in [
        (("run", "--quantize", "int8", "--backend", "transformers", "Hi"), "--backend is transformers"),
        (("run", "--quantize", "int8", "--dtype", "bfloat16", "Hi"), "--dtype is bfloat16"),
        (("run", "--quantize", "int4", "--kernel", "plain", "Hi"), "--kernel is plain"),
        (("run", "--quantize", "int8", "-m", "fake", "Hi"), "knows only none"),
        (("quantize", "tiny"), "takes a model and a new folder"),
        (("quantize", "fake", "out"), "has no files"),
        (("quantize", "tiny", "no/such/out"), "There is no folder no/such"),
    ]:
        done = gencli(*words)
        assert done.code in (2, 5), words
        assert said in done.err, words
