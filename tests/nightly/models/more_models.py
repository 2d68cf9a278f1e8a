"""Tiny random models of architectures that tests/models/tiny_models.py lacks: a table of their sizes."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

from tests.models.tiny_models import WINDOW, base

VOCAB = 256  # so each id is a byte of ByteTokenizer

_SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024}
_MPT = {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 1024}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_SHARED_EXPERT = _EXPERTS | {"shared_expert_intermediate_size": 32}
_ROUTED_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_LATENT = {  # multi-head latent attention
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8}
_DELTA = {  # gated delta rule
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_GEMMA: dict[str, Any] = {  # the last two of four layers share keys and values of the first two
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "head_dim": 8,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCAB,
}

# By model type, what differs from `base`.
SIZES: dict[str, dict[str, Any]] = {
    # attention
    "apertus": {},
    "bloom": {},
    "codegen": _GPT2 | {"n_embd": 64, "rotary_dim": 8},
    "cohere": {},
    "cohere2": _SLIDING,
    "diffllama": {},
    "ernie4_5": {"head_dim": 16},
    "exaone4": _SLIDING,
    "falcon": {},
    "gemma3n_text": _GEMMA
    | {"laurel_rank": 4, "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0], "altup_num_inputs": 2},
    "gemma4_text": _GEMMA | {"global_head_dim": 16},
    "glm4": {"head_dim": 16},
    "gpt_bigcode": _GPT2,
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "hunyuan_v1_dense": {"head_dim": 16},
    "ministral3": {
        "head_dim": 8,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16,
        },
    },
    "mpt": _MPT,
    "nemotron": {},
    "olmo3": _SLIDING,
    "persimmon": {},
    "phi": {},
    "seed_oss": {"head_dim": 16},
    "starcoder2": {"sliding_window": WINDOW},
    # attention and experts
    "dbrx": _MPT
    | {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 2.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": _LATENT | _ROUTED_EXPERTS | {"n_group": 1},
    "deepseek_v3": _LATENT | _ROUTED_EXPERTS,
    "ernie4_5_moe": {
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": 32,
        "moe_layer_start_index": 1,
    },
    "glm4_moe": _ROUTED_EXPERTS | {"head_dim": 16},
    "granitemoe": _LOCAL_EXPERTS,
    "hunyuan_v1_moe": {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
    "llama4_text": _LOCAL_EXPERTS
    | {
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 64,
        "moe_layers": [1],
        "head_dim": 8,
        "no_rope_layers": [1, 0],
        "attention_chunk_size": WINDOW,
        "floor_scale": 8,
        "attn_scale": 0.5,
    },
    "longcat_flash": _LATENT
    | {
        "num_layers": 1,
        "head_dim": 8,
        "n_routed_experts": 4,
        "moe_topk": 2,
        "zero_expert_num": 1,
        "expert_ffn_hidden_size": 32,
        "ffn_hidden_size": 64,
    },
    "minimax_m2": _LOCAL_EXPERTS | {"head_dim": 16},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "phimoe": _LOCAL_EXPERTS,
    "qwen2_moe": _SHARED_EXPERT,
    # layers that run several times, with keys and values of each time
    "dory": {
        "num_hidden_layers": 4,
        "n_input_layers": 1,
        "n_recurrent_layers": 2,
        "n_output_layers": 1,
        "head_dim": 8,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "ngpt_alpha_init": 0.5,
    },
    "hrm_text": {"head_dim": 8, "H_cycles": 1, "L_cycles": 2},
    # running state
    "deepseek_v32": _LATENT
    | _ROUTED_EXPERTS
    | {
        "index_topk": 8,
        "index_n_heads": 2,
        "index_head_dim": 16,
    },  # keys of an index, which cannot be cropped
    "falcon_mamba": {"state_size": 8},
    "granitemoehybrid": _LOCAL_EXPERTS
    | _MAMBA
    | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 32},
    "jamba": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "kimi_linear": _LATENT
    | _EXPERTS
    | _LINEAR
    | {
        "linear_attn_config": {
            "head_dim": 8,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
            "kda_layers": [1],
            "full_attn_layers": [2],
        }
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": _EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "minimax": _LOCAL_EXPERTS | _LINEAR | {"head_dim": 8, "block_size": 8},
    "nemotron_h": _ROUTED_EXPERTS
    | {
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "attention", "moe"],
        "head_dim": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
        "moe_shared_expert_intermediate_size": 32,
    },
    "olmo_hybrid": _DELTA | _LINEAR,
    "qwen3_5_text": _DELTA | _LINEAR | {"head_dim": 16},
    "qwen3_next": _SHARED_EXPERT | _DELTA | _LINEAR | {"head_dim": 16},
    "xlstm": {"hidden_size": 128, "num_heads": 4, "num_blocks": 2},
    "zamba2": {
        "layer_types": ["mamba", "hybrid"],
        "hybrid_layer_ids": [1],
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
    },
}

# Models that gencli refuses: their sizes, and what the message says.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "openai-gpt": (_GPT2, "openai-gpt models cannot be run: .* returns no cache"),
    "recurrent_gemma": (
        {"num_hidden_layers": 3, "lru_width": 32},
        "recurrent_gemma keeps its state inside its layers",
    ),
}

# Seeds whose greedy texts are varied; a test checks that they are.
_SEEDS = {"bloom": 1, "falcon": 1, "mpt": 2, "persimmon": 3, "phi": 1, "llama4_text": 1}


def build_more(kind: str) -> Any:
    """A random model of SIZES or REFUSED in float32, whose biases and norms are no plain zeros and ones."""
    sizes = SIZES[kind] if kind in SIZES else REFUSED[kind][0]
    config = hf.AutoConfig.for_model(kind, **base(**{"vocab_size": VOCAB} | sizes))
    torch.manual_seed(_SEEDS.get(kind, 0))
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.data += 0.2 * torch.randn_like(weight)
        elif "A_log" not in name:  # the decay of a state, which has to stay a decay
            torch.nn.init.normal_(weight, std=0.25)
    return model
