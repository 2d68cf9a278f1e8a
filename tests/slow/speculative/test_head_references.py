"""The references of MTP and of layers, and the names of files, against transformers."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from tests.speculative.reference_heads import below, doubled, plain_block, transformers_block
from tests.speculative.tiny_heads import Shape
from tests.speculative.tiny_targets import MTP, MTP_OF_TRANSFORMERS, UNLIKE_LLAMA, shape_of, tiny_target

SHAPE = Shape(layers=4)
IDS = torch.randint(0, SHAPE.vocab, (12,), generator=torch.Generator().manual_seed(2)).tolist()
CASES = MTP | MTP_OF_TRANSFORMERS
# Those whose names transformers reads: of mtp. it knows one layer, with a projection of its own.
UNREAD = ("mimo", "speculators", "qwen qwen3_moe of two layers")
READ = [name for name in CASES if not name.startswith(UNREAD)]


def loaded(name, tmp_path):
    """The layers as transformers reads them from the folder of a target, and the target."""
    made = CASES[name](SHAPE)
    folder = made.target.write(tmp_path / "target")
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    count = made.reference().num_layers
    # Its families have these keys; others only have the layers.
    model.config.num_mtp_layers = count
    if getattr(model.config, "layer_types", None):
        model.config.mtp_layer_types = ["full_attention"] * count
    first = SHAPE.layers
    model._keys_to_ignore_on_load_unexpected = [
        rf"^model\.layers\.({'|'.join(map(str, range(first, first + count)))})\.",
        r"^mtp\.",
    ]
    return made, model, MtpModel.from_pretrained(model).eval()


def drafts_of(layers, model, ids):
    """Tokens and logits of one draft for each layer behind a text, as transformers drafts them."""
    with torch.no_grad():
        states = model.model(torch.tensor([ids[:-1]])).last_hidden_state
        tokens, logits, _ = layers(
            input_ids=torch.tensor([ids[1:]]),
            last_hidden_states=states,
            attention_mask=None,
            position_ids=torch.arange(1, len(ids))[None],
            mtp_cache=MtpCache(config=model.config.get_mtp_config()),
        )
    return tokens[0].tolist(), logits[0]


@pytest.mark.parametrize("name", READ)
def test_layers_of_mtp_draft_as_those_of_transformers(name, tmp_path):
    made, model, layers = loaded(name, tmp_path)
    tokens, logits = drafts_of(layers, model, IDS)
    reference = made.reference()
    own, expected = reference.draft(IDS, made.target.states(IDS), reference.num_layers)
    assert tokens == own
    assert torch.allclose(logits.double(), expected, atol=1e-5)


def test_the_feature_comes_first_in_mimo(tmp_path):
    """Under the names of transformers, with its switch for the order."""
    made = CASES["mimo"](SHAPE)
    made.target.write(tmp_path)
    model = made.target.model
    model.config.num_mtp_layers, model.config.mtp_hidden_states_first = 1, True
    if getattr(model.config, "layer_types", None):
        model.config.mtp_layer_types = ["full_attention"]
    layers = MtpModel(model, 1).eval()
    names = {
        "token_layernorm": "enorm",
        "hidden_layernorm": "hnorm",
        "input_proj": "eh_proj",
        "final_layernorm": "post_norm",
    }
    weights = {}
    for name, weight in below(made.target.tensors, "model.mtp_layers.0.").items():
        part = name.split(".")[0]
        own = re.sub(part, names[part], name) if part in names else f"mtp_block.{name}"
        weights[f"layers.0.{own}"] = weight
    result = layers.load_state_dict(weights, strict=False)
    assert not result.unexpected_keys
    assert not [key for key in result.missing_keys if key.startswith("layers.")]
    tokens, logits = drafts_of(layers, model, IDS)
    own, expected = made.reference().draft(IDS, made.target.states(IDS), 1)
    assert tokens == own
    assert torch.allclose(logits.double(), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "qwen3_moe", "mellum"])
def test_a_plain_layer_is_that_of_transformers(family):
    target = tiny_target(family, SHAPE)
    states = target.states(IDS)
    shape, positions = shape_of(target.model.config, family), torch.arange(len(IDS))
    for k in range(SHAPE.layers):
        block = plain_block(doubled(below(target.tensors, f"model.layers.{k}.")), shape)
        assert torch.allclose(block(states[k].double(), positions), states[k + 1].double(), atol=1e-5)


@pytest.mark.parametrize("family", UNLIKE_LLAMA)
def test_a_layer_of_transformers_runs_alone(family):
    target = tiny_target(family, SHAPE)
    states = target.states(IDS)
    layer, rotary = target.model.model.layers[-1].double(), target.model.model.rotary_emb
    alone = transformers_block(layer, rotary)(states[SHAPE.layers - 1].double(), torch.arange(len(IDS)))
    assert torch.allclose(alone, states[SHAPE.layers].double(), atol=1e-5)
