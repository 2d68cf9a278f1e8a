"""The configuration of gpt-oss, as it is on the hub and as transformers writes it."""

import json
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.families import Unsupported, read_spec
from tests.models.cases import case
from tests.models.native import native_decoder
from tests.models.tiny_models import NATIVE_CONFIGS, PROMPTS, WINDOW, build_native

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


def config(**changes: Any) -> dict[str, Any]:
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


def test_what_is_not_known_is_refused_by_name() -> None:
    for changes, reason in [
        ({"swiglu_alpha": 1.0}, "swiglu_alpha is 1.0"),
        ({"hidden_act": "gelu"}, "the activation 'gelu'"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layers of type chunked"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized by another program"),
        ({"shared_experts": 1}, "'shared_experts', which the decoder does not know"),
    ]:
        with case(changes, reason), pytest.raises(Unsupported, match=reason):
            read_spec(config(**changes))


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
