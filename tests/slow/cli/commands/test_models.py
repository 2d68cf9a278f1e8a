"""Models on the command line: folders, GGUF files, quantized copies, GPUs, what fits."""

import json
import shutil
import warnings

import pytest
import transformers as hf
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as DECODERS

from gencli.models.files.model_card import ALONE_KINDS, read_card
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.model_calls import LogitsCall
from tests.cli.commands.test_models import COMPANY, ON_GPU, PROMPTS, SHORT, TINY, UNSTEADY, check, failing
from tests.models.tiny_models import CONFIGS, build
from tests.sham import Card, sham_device

_SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}

# What no other test needs.
OLDER = {
    "bloom": lambda: hf.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, seq_length=256),
    "codegen": lambda: hf.CodeGenConfig(vocab_size=99, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "falcon": lambda: hf.FalconConfig(**_SMALL),
    "mpt": lambda: hf.MptConfig(vocab_size=99, d_model=32, n_layers=2, n_heads=4),
}


def test_the_card_agrees_with_the_loaded_model(tmp_path):
    for kind in [*CONFIGS, *OLDER]:
        model = hf.AutoModelForCausalLM.from_config(OLDER[kind]()) if kind in OLDER else build(kind)
        model.save_pretrained(tmp_path / kind)
        card, runner = read_card(tmp_path / kind), HFRunner(model)
        assert card.can_rollback == runner.spec.can_rollback, kind
        is_alone = any("one request at a time" in text for text in runner.spec.notices)
        assert (card.lanes == "own") == is_alone, kind
        assert card.context == (None if kind == "mamba" else runner.spec.context), kind
        assert card.weights.parameters == sum(weight.numel() for weight in model.parameters()), kind


def test_the_library_s_code_of_these_kinds_cannot_share_lanes():
    for kind in sorted(ALONE_KINDS):
        code = getattr(hf, DECODERS[kind])
        assert not (LogitsCall(code).takes_positions and code._supports_attention_backend), kind


def test_whether_steps_are_recorded_on_a_gpu_is_shown(gencli, tmp_path):
    for kind, found in [
        ("llama", "recorded on a CUDA GPU"),
        ("qwen3_moe", "recorded on a CUDA GPU"),
        ("gpt2", "recorded on a CUDA GPU, if transformers compiles the model as one graph"),
        ("mamba", "none, as the model runs one request at a time in each step"),
    ]:
        build(kind).save_pretrained(tmp_path / kind)
        lines = gencli("models", "show", str(tmp_path / kind)).out.splitlines()
        assert [line.split(None, 1)[1] for line in lines if line.startswith("graphs")] == [found], kind


def test_where_neighbours_or_drafts_may_change_a_text_a_run_says_so(gencli):
    for flags, is_said in [
        (("hi",), False),
        (("hi", "yo"), True),
        (("hi", "-n", 2), True),
        (("hi", "--best-of", 2), True),
        (("hi", "--draft", "ngram"), True),
        (("hi", "--draft", "ngram", "--verify", "rejection"), False),
        (("hi", "--choice", "yes"), True),
        (("hi", "--choice", "yes", "--jump-forward", "off"), False),
        (("hi", "yo", "--quiet"), False),
    ]:
        done = gencli("run", *UNSTEADY, "--seed", 1, "--max-tokens", 2, *flags)
        assert (done.err.count(COMPANY) == 1) == is_said, flags
    assert COMPANY not in gencli("run", "--dtype", "float32", "--max-tokens", 2, "hi", "yo").err


def test_an_end_that_no_token_has_ends_no_text_and_is_said(gencli, tmp_path):
    for flags in [(), ("--min-tokens", "4"), ("--json",), ("--beams", "2")]:
        folder = shutil.copytree(TINY, tmp_path / str(len(flags)) / str(flags))
        made = folder / "generation_config.json"
        plain = gencli("run", "--model", folder, *SHORT, *flags)
        given = json.loads(made.read_text())
        made.write_text(json.dumps(given | {"eos_token_id": [*given["eos_token_id"], 2048, -1]}))
        result = gencli("run", "--model", folder, *SHORT, *flags)
        assert (result.code, result.out) == (plain.code, plain.out), flags
        assert "Token id 2048 is declared to end texts, but the model has none" in result.err, flags
        assert "Token id -1" in result.err, flags


def test_a_device_that_is_not_here_is_named_and_steps_run_ahead_on_a_gpu_only(gencli):
    gencli("run", "--device", "cuda:99", *SHORT).refused("cuda:99", code=5)

    gencli("run", "--async", *SHORT).refused("--async", "runs on cpu")
    assert gencli("run", "--no-async", *SHORT).out == gencli("run", *SHORT).out


def test_the_bundled_model_is_the_default_and_chat_uses_its_template(gencli):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        default = gencli("run", *SHORT)
    assert default.code == 0
    assert len(default.err.splitlines()) == 2
    assert gencli("run", "--model", str(TINY), *SHORT).out == default.out

    record = gencli("run", "--format", "json", *SHORT).json
    chat = gencli("run", "--format", "json", "--chat", "--system", "Be brief.", *SHORT).json
    assert chat["prompt"] == record["prompt"]
    assert chat["prompt_tokens"] > record["prompt_tokens"]


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


def test_a_run_and_a_chat_end_with_one_message(gencli):
    with sham_device() as seen:
        seen.faults.append(failing(1000))
        check(gencli("run", *ON_GPU, "Once upon a time"))

    with sham_device() as seen:
        seen.faults.append(failing(1000))
        check(gencli("chat", *ON_GPU, stdin=b"Hello\nMore\nAgain\n"))


def test_a_batch_keeps_what_is_finished_and_resumes(gencli, tmp_path):
    source, made = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"Once upon {n}"}) + "\n" for n in range(4)))
    arguments = ("batch", source, "-o", made, *ON_GPU, "--max-batch", "2")
    with sham_device() as seen:
        seen.faults.append(failing(5000))
        failed = gencli(*arguments)
        check(failed)
        assert "--resume continues the run" in failed.err
    with sham_device():
        assert gencli(*arguments, "--resume").code == 0
    resumed = made.read_text()
    with sham_device():
        assert gencli(*arguments, "--overwrite").code == 0
    assert [json.loads(line)["text"] for line in resumed.splitlines()] == [
        json.loads(line)["text"] for line in made.read_text().splitlines()
    ]


def test_the_second_of_two_gpus(gencli):
    with sham_device(Card(), Card()):
        first, second = (gencli("run", *ON_GPU[2:], "--device", f"cuda:{n}", "Once") for n in range(2))
    assert first.out == second.out
    assert (first.code, second.code) == (0, 0)
