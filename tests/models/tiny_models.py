"""Builders of tiny random models, one for each kind of architecture the runner has to get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

VOCAB = 120
WINDOW = 16
# Models that keep a running state, and so cannot forget what drafts added to it.
NO_ROLLBACK = {"mamba", "rwkv", "falcon_h1", "bamba"}
_NOISE = torch.Generator().manual_seed(5)
# Two of them are longer than the window.
PROMPTS = [torch.randint(0, VOCAB, (length,), generator=_NOISE).tolist() for length in (3, 7, 21, 40)]

# No text has a special beginning or end.
_NO_SPECIALS: dict[str, None] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.25,
    "tie_word_embeddings": False,
    **_NO_SPECIALS,
}


def base(**changes: Any) -> dict[str, Any]:
    """The sizes of a tiny model, with changes."""
    return {**_BASE, **changes}


# The sizes of `base`, as GPT-2 and those after it call them.
_AS_GPT2: dict[str, Any] = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 1024,
    "initializer_range": 0.25,
    **_NO_SPECIALS,
}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaConfig(**base()),
    "qwen3": lambda: hf.Qwen3Config(**base(head_dim=16)),
    "gpt2": lambda: hf.GPT2Config(**_AS_GPT2, tie_word_embeddings=False),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **base(num_hidden_layers=4, head_dim=8, sliding_window=WINDOW),
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "mistral": lambda: hf.MistralConfig(**base(sliding_window=WINDOW)),
    "phi3": lambda: hf.Phi3Config(**base()),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**base()),
    "opt": lambda: hf.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        word_embed_proj_dim=32,
        max_position_embeddings=1024,
        init_std=0.25,
        **_NO_SPECIALS,
    ),
    "gemma2": lambda: hf.Gemma2Config(
        **base(head_dim=8, sliding_window=WINDOW), layer_types=["sliding_attention", "full_attention"]
    ),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **base(head_dim=16), num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "mamba": lambda: hf.MambaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        initializer_range=0.25,
        **_NO_SPECIALS,
    ),
    "rwkv": lambda: hf.RwkvConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        attention_hidden_size=32,
        num_hidden_layers=2,
        context_length=1024,
        bos_token_id=None,
        eos_token_id=None,
    ),
    "doge": lambda: hf.DogeConfig(**base()),
    "afmoe": lambda: hf.AfmoeConfig(
        **base(head_dim=8, sliding_window=WINDOW, moe_intermediate_size=32),
        num_dense_layers=1,
        num_experts=4,
        num_experts_per_tok=2,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "bamba": lambda: hf.BambaConfig(
        **base(),
        attn_layer_indices=[1],
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        mamba_chunk_size=8,
    ),
    "gptj": lambda: hf.GPTJConfig(**_AS_GPT2, rotary_dim=8),
    "stablelm": lambda: hf.StableLmConfig(**base()),
    "falcon_h1": lambda: hf.FalconH1Config(
        **base(),
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=8,
    ),
}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 32}
_LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
# Models of gencli's own decoder: each family, each kind of rotary embedding, biases and tied weights.
NATIVE_CONFIGS: dict[str, Callable[[], Any]] = {
    **{kind: CONFIGS[kind] for kind in ("llama", "mistral", "qwen3", "gemma2", "gemma3", "qwen3_moe")},
    "llama3": lambda: hf.LlamaConfig(**base(head_dim=16), rope_parameters=_LLAMA3),
    "yarn": lambda: hf.Qwen3Config(**base(head_dim=16), rope_parameters=_YARN),
    "linear": lambda: hf.LlamaConfig(
        **base(), rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "biased": lambda: hf.LlamaConfig(**base(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "qwen2": lambda: hf.Qwen2Config(
        **base(sliding_window=WINDOW), use_sliding_window=True, max_window_layers=1
    ),
    "gemma": lambda: hf.GemmaConfig(**base(head_dim=8)),
    "phi3": lambda: hf.Phi3Config(
        **base(), rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    ),
    "olmo2": lambda: hf.Olmo2Config(**base()),
    "granite": lambda: hf.GraniteConfig(
        **base(),
        embedding_multiplier=6.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        logits_scaling=4.0,
    ),
    "smollm3": lambda: hf.SmolLM3Config(**base(), no_rope_layers=[1, 0]),
    "mixtral": lambda: hf.MixtralConfig(**base(), num_local_experts=4, num_experts_per_tok=2),
    "gpt_oss": lambda: hf.GptOssConfig(
        **base(head_dim=16, sliding_window=WINDOW),
        num_local_experts=4,
        num_experts_per_tok=2,
        swiglu_limit=2.0,  # which many of its gates reach
        rope_parameters=_YARN | {"truncate": False},
    ),
}

# Of them one for each way to attend: to all tokens, to a window, with experts, with sinks. Nightly runs all.
SUITE_KINDS = ("llama", "gemma3", "qwen3_moe", "gpt_oss")

# Seeds whose greedy text is varied; the tests check that it is.
SEEDS = {
    "gpt_oss": 1,
    "qwen3": 2,
    "rwkv": 1,
    "gemma3": 6,
    "gpt_neox": 4,
    "opt": 7,
    "qwen3_moe": 3,
    "gptj": 7,
    "stablelm": 1,
}


def build(kind: str) -> Any:
    """A random model in float32, in evaluation mode."""
    torch.manual_seed(SEEDS.get(kind, 0))
    model = hf.AutoModelForCausalLM.from_config(CONFIGS[kind]()).eval()
    if kind in ("mamba", "rwkv"):  # their own initialisation is too tame to say more than one word
        for name, weight in model.named_parameters():
            if name.endswith("weight") and weight.dim() == 2:
                torch.nn.init.normal_(weight, std=0.5)
    return model


SWITCH = 48
LONG_ROPE = ("phi3", "phimoe", "llama")


def long_rope(kind: str, switch: int = SWITCH) -> Any:
    """A model whose rotary factors are others in texts longer than `switch`."""
    rope: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4}
    rope |= {"long_factor": [4.0] * 4, "original_max_position_embeddings": switch}
    rope["partial_rotary_factor"] = 1.0
    if kind == "phimoe":
        rope |= {"short_mscale": 1.1, "long_mscale": 1.3}
        config = hf.PhimoeConfig(**base(num_local_experts=4, num_experts_per_tok=2))
    else:
        config = CONFIGS[kind]()
    config.rope_parameters, config.original_max_position_embeddings = rope, switch
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(config).eval()


def build_native(kind: str) -> Any:
    """A model of NATIVE_CONFIGS, whose biases and norms are no plain zeros and ones."""
    torch.manual_seed(SEEDS.get(kind, 0))
    model = hf.AutoModelForCausalLM.from_config(NATIVE_CONFIGS[kind]()).eval()
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "sinks")):
            torch.nn.init.normal_(weight, std=0.3)
        elif "norm" in name:
            weight.data += 0.2 * torch.randn_like(weight)
    return model


def continued(model: Any, count: int) -> list[list[int]]:
    """What generate() chooses greedily behind each of PROMPTS."""
    texts = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
        )
        texts.append(whole[0, len(prompt) :].tolist())
    return texts
