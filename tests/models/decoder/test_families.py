"""A configuration that the decoder does not know in full is refused with the reason.

The configuration of gpt-oss, as it is on the hub and as transformers writes it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.decoder.decoder import DecoderRunner, read_decoder
from gencli.models.decoder.families import FAMILIES, Unsupported, read_spec
from gencli.models.decoder.products.dense_products import PlainProduct
from gencli.models.decoder.products.product_maker import ProductMaker
from tests.models.cases import case
from tests.models.native import checkpoint_of, native_decoder
from tests.models.tiny_models import NATIVE_CONFIGS, PROMPTS, WINDOW, base, build, build_native

MAKE = ProductMaker(PlainProduct)
CPU = torch.device("cpu")


def config(**changes: Any) -> dict[str, Any]:
    return {**json.loads(hf.LlamaConfig(**base()).to_json_string(use_diff=False)), **changes}


def test_what_is_not_known_is_refused_by_name() -> None:
    for changes, reason in [
        ({"model_type": "mamba"}, "models of type mamba are none of its families"),
        ({"new_gate": 3}, "'new_gate', which the decoder does not know"),
        ({"quantization_config": {}}, "quantized by another program"),
        ({"hidden_act": "relu2"}, "the activation 'relu2'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic', which the decoder"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "llama3 lacks low_freq_factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "turns": 1}}, "'turns', which the decoder"),
        ({"hidden_size": None}, "cannot be read"),
        ({"partial_rotary_factor": 1e308}, "cannot be read: OverflowError"),
        ({"num_hidden_layers": 2**31 - 1}, "more than 10000 layers"),
        ({"model_type": "gemma", "use_bidirectional_attention": True}, "looks ahead"),
        ({"model_type": "smollm3", "layer_types": ["chunked_attention"] * 2}, "layers of type chunked"),
    ]:
        with case(changes, reason), pytest.raises(Unsupported, match=reason):
            read_spec(config(**changes))
    known = config(new_gate=None, torch_dtype="bfloat16", attention_dropout=0.5, _model_name_or_path="x")
    assert read_spec(known).num_layers == 2  # keys without a value, of training, of transformers itself


def test_the_tests_run_every_family() -> None:
    known = {make().model_type for make in NATIVE_CONFIGS.values()}
    assert known | {"mimo"} == set(FAMILIES)  # transformers has no MiMo without its code


def test_mimo_is_qwen2_with_layers_for_drafts() -> None:
    qwen2 = json.loads(NATIVE_CONFIGS["qwen2"]().to_json_string(use_diff=False))
    mimo = {"model_type": "mimo", "attention_bias": True, "num_nextn_predict_layers": 1}
    code = {"AutoModelForCausalLM": "modeling_mimo.MiMoForCausalLM"}
    assert read_spec({**qwen2, **mimo, "auto_map": code}) == read_spec(qwen2)


def test_older_rotary_keys_mean_the_same() -> None:
    for older, same in [
        ({"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        (
            {"rope_theta": 3e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 3e4, "factor": 2.0}},
        ),
    ]:
        with case(older, same):
            bare = config()
            del bare["rope_parameters"]
            old, new = read_spec({**bare, **older}).ropes[0], read_spec({**bare, **same}).ropes[0]
            assert (old.kind, old.theta, old.width) == (new.kind, new.theta, new.width)


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    for changes, reason in [
        ({"hidden_size": 64}, r"config.json asks for \[120, 64\]"),
        ({"num_hidden_layers": 3}, "lacks the weights model.layers.2"),
    ]:
        with case(changes, reason):
            build("llama").save_pretrained(tmp_path)
            with pytest.raises(ModelError, match=reason):
                read_decoder(
                    checkpoint_of(tmp_path, head_dim=8, **changes), make=MAKE, dtype=torch.float32, device=CPU
                )


# What a configuration on the hub has beside the defaults of transformers; two keys are not read there.
HUB: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "initial_context_length": 4096,
    "rope_theta": 150000,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}


def gpt_oss_config(**changes: Any) -> dict[str, Any]:
    return {**json.loads(NATIVE_CONFIGS["gpt_oss"]().to_json_string(use_diff=False)), **changes}


def test_a_configuration_of_the_hub_is_that_of_transformers() -> None:
    sizes = json.loads(hf.GptOssConfig(num_hidden_layers=24, num_local_experts=32).to_json_string())
    bare = {key: value for key, value in sizes.items() if key not in ("rope_parameters", "layer_types")}
    found, expected = read_spec({**bare, **HUB}), read_spec({**sizes, "model_type": "gpt_oss"})
    assert (found.windows, found.scale, found.experts) == (expected.windows, expected.scale, expected.experts)
    assert found.windows == (128, None) * 12
    assert (found.ropes[0].theta, found.ropes[0].values["factor"]) == (150_000.0, 32.0)
    assert (found.gate_limit, found.has_sinks, found.has_qkv_bias, found.has_out_bias) == (
        7.0,
        True,
        True,
        True,
    )


def test_what_is_not_known_of_gpt_oss_is_refused_by_name() -> None:
    for changes, reason in [
        ({"swiglu_alpha": 1.0}, "swiglu_alpha is 1.0"),
        ({"hidden_act": "gelu"}, "the activation 'gelu'"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layers of type chunked"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized by another program"),
        ({"shared_experts": 1}, "'shared_experts', which the decoder does not know"),
    ]:
        with case(changes, reason), pytest.raises(Unsupported, match=reason):
            read_spec(gpt_oss_config(**changes))


@torch.inference_mode()
def test_logits_of_prompts_in_one_batch_are_those_of_transformers() -> None:
    model = build_native("gpt_oss")
    runner = DecoderRunner(native_decoder(model), max_lanes=len(PROMPTS))
    feeds = tuple(Feed(lane, 0, tuple(prompt), len(prompt)) for lane, prompt in enumerate(PROMPTS))
    expected = torch.cat([model(torch.tensor([prompt])).logits[0] for prompt in PROMPTS])
    assert max(map(len, PROMPTS)) > 2 * WINDOW
    torch.testing.assert_close(runner.forward(StepPlan(feeds)), expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_the_sinks_change_the_logits() -> None:
    model = build_native("gpt_oss")
    before = model(torch.tensor([PROMPTS[1]])).logits
    for layer in model.model.layers:
        layer.self_attn.sinks.data.fill_(-torch.inf)
    after = DecoderRunner(native_decoder(model)).forward(StepPlan((Feed(0, 0, tuple(PROMPTS[1]), 7),)))
    assert (before[0] - after).abs().max() > 0.1
