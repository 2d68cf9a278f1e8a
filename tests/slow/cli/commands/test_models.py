"""`gencli models`: what the files say, and that no weights are read."""

import transformers as hf
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as DECODERS

from gencli.models.files.model_card import ALONE_KINDS, read_card
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.model_calls import LogitsCall
from tests.models.tiny_models import CONFIGS, build

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
