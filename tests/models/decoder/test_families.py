"""A configuration that the decoder does not know in full is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.errors import ModelError
from gencli.models.decoder.decoder import read_decoder
from gencli.models.decoder.families import FAMILIES, Unsupported, read_spec
from gencli.models.decoder.products.dense_products import PlainProduct
from gencli.models.decoder.products.product_maker import ProductMaker
from tests.models.cases import case
from tests.models.native import checkpoint_of
from tests.models.tiny_models import NATIVE_CONFIGS, base, build

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
        ({"model_type": "gemma", "use_bidirectional_attention": True}, "looks ahead"),
        ({"model_type": "smollm3", "layer_types": ["chunked_attention"] * 2}, "layers of type chunked"),
    ]:
        with case(changes, reason), pytest.raises(Unsupported, match=reason):
            read_spec(config(**changes))
    known = config(new_gate=None, torch_dtype="bfloat16", attention_dropout=0.5, _model_name_or_path="x")
    assert read_spec(known).num_layers == 2  # keys without a value, of training, of transformers itself


def test_the_tests_run_every_family() -> None:
    assert {make().model_type for make in NATIVE_CONFIGS.values()} == set(FAMILIES)


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
