"""GGUF files of models and tokenizers, written as llama.cpp's converter does."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

__all__ = ["add_byte_level", "add_letters", "add_sentencepiece", "random_blocks", "write_head", "write_model"]

ARCHS = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
REORDERED = ("llama", "granite", "smollm3")
NUMBERS = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
}


def write_model(path: Path, model: Any, kind: str = "F32", add_vocabulary: Any = None) -> None:
    """Write a transformers model; matrices in the number format `kind`, vectors in float32."""
    config = model.config
    arch = ARCHS.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, arch)
    _add_sizes(writer, arch, config)
    (add_vocabulary or add_letters)(writer, config.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = load_file(Path(folder, "model.safetensors"))
    number = next(one for one in gguf.MODEL_ARCH if gguf.MODEL_ARCH_NAMES[one] == arch)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for name, tensor in _converted(arch, config, weights):
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        _add_tensor(writer, found, tensor, kind)
    for name, values in _rope_tensors(config).items():
        writer.add_tensor(name, np.array(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Tensors of draft heads, and what the converter calls them. Others are left out, as t2d is.
_HEAD_NAMES = {
    "fc.weight": "fc.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "embed_tokens.weight": "token_embd.weight",
    "input_norm.weight": "enc.output_norm.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    **{f"markov_head.markov_w{number}.weight": f"markov_w{number}.weight" for number in (1, 2)},
    **{f"confidence_head.proj.{part}": f"conf_proj.{part}" for part in ("weight", "bias")},
}
_LAYER_NAMES = {
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"self_attn.{part}_norm": f"attn_{part}_norm" for part in "qk"},
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "post_attention_layernorm": "ffn_norm",
}


def write_head(
    path: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    kind: str = "F32",
    *,
    layers: int,
    keys: Mapping[str, Any] | None = None,
    more: Mapping[str, torch.Tensor] | None = None,
    add_vocabulary: Any = None,
) -> Path:
    """Write a draft head for a model of so many layers, from config.json and tensors of a folder.

    `keys` are added, or replace others, or leave them out (None); so are the tensors `more`.
    """
    config = {**config, **config.get("dflash_config", {}), **config.get("transformer_layer_config", {})}
    is_eagle = "layers.0.hidden_norm.weight" in {_bare(name) for name in tensors}
    arch = "eagle3" if is_eagle else "dflash"
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer = gguf.GGUFWriter(path, arch)
    values: dict[str, Any] = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "block_count": config["num_hidden_layers"],
        "attention.head_count": heads,
        "attention.head_count_kv": groups,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": float((config.get("rope_parameters") or config)["rope_theta"]),
        "rope.dimension_count": width,
    }
    values |= _eagle_keys(config, layers) if is_eagle else _block_keys(config)
    mask = {} if is_eagle else {"tokenizer.ggml.mask_token_id": config["mask_token_id"]}
    for key, value in (
        {f"{arch}.{key}": value for key, value in values.items()} | mask | dict(keys or {})
    ).items():
        if value is not None:
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
            add.get(type(value), writer.add_array)(key, value)
    (add_vocabulary or add_letters)(writer, config["vocab_size"])
    renamed = dict(_head_tensors(tensors, heads if is_eagle else 0, groups)) | dict(more or {})
    for name, tensor in renamed.items():
        if name == "d2t":
            ids = tensor + torch.arange(len(tensor))
            writer.add_tensor(name, ids.numpy())
        elif tensor is not None:
            _add_tensor(writer, name, tensor, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _eagle_keys(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    ids = {**config, **config.get("eagle_config", {})}.get("eagle_aux_hidden_state_layer_ids")
    return {
        "target_layers": ids or [2, layers // 2, layers - 3],
        "target_hidden_size": config.get("target_hidden_size") or config["hidden_size"],
        "norm_before_residual": config.get("norm_before_residual", False),
        "norm_before_fc": config.get("norm_before_fc", False),
    }


def _block_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    states = config.get("aux_hidden_state_layer_ids") or [layer + 1 for layer in config["target_layer_ids"]]
    near = [one == "sliding_attention" for one in config["layer_types"]]
    return {
        "target_layers": states,
        "block_size": config["block_size"],
        "attention.causal": config.get("causal", False),
        "attention.sliding_window": config.get("sliding_window"),
        "attention.sliding_window_pattern": near if any(near) else None,
        "sample_from_anchor": config.get("sample_from_anchor"),
    }


def _head_tensors(
    tensors: Mapping[str, torch.Tensor], heads: int, groups: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a head; rows of queries and keys are reordered where there are `heads`."""
    for name, tensor in tensors.items():
        name = _bare(name)
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            part, _, suffix = rest.rpartition(".")
            if heads and part.endswith(("q_proj", "k_proj")):
                tensor = _permuted(tensor, heads if "q_proj" in part else groups)
            if part in _LAYER_NAMES:
                yield f"blk.{layer}.{_LAYER_NAMES[part]}.{suffix}", tensor
        elif name == "d2t" or name in _HEAD_NAMES:
            yield _HEAD_NAMES.get(name, name), tensor


def _bare(name: str) -> str:
    return name.removeprefix("model.").replace("midlayer.", "layers.0.")


def _converted(
    arch: str, config: Any, weights: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors with the converter's changes."""
    experts: dict[str, list[torch.Tensor]] = {}
    for name, tensor in sorted(weights.items(), key=lambda one: _numbers(one[0])):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if arch in REORDERED and "q_proj" in name:
            tensor = _permuted(tensor, config.num_attention_heads)
        if arch in REORDERED and "k_proj" in name:
            tensor = _permuted(tensor, config.num_key_value_heads)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor + 1
        if ".experts." in name:
            front, _, back = name.partition(".experts.")
            part = back.split(".")[1]
            if arch == "llama":
                layer = front.split(".")[2]
                key = f"layers.{layer}.feed_forward.experts.{part}.weight"
            else:
                key = f"{front}.experts.{part}.weight"
            experts.setdefault(key, []).append(tensor)
            continue
        yield name, tensor
    for name, stacked in experts.items():
        yield name, torch.stack(stacked)


def _numbers(name: str) -> list[int]:
    return [int(part) for part in name.split(".") if part.isdigit()]


def _permuted(weights: torch.Tensor, heads: int) -> torch.Tensor:
    rest = weights.shape[1:]
    halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *rest)
    return halves.swapaxes(1, 2).reshape(weights.shape)


def _add_tensor(writer: Any, name: str, tensor: torch.Tensor, kind: str) -> None:
    data = tensor.detach().float().numpy()
    number = gguf.GGMLQuantizationType[kind]
    if data.ndim == 1 or data.shape[-1] % gguf.GGML_QUANT_SIZES[number][0]:
        writer.add_tensor(name, data)
    elif kind in ("Q4_K", "Q6_K"):
        writer.add_tensor(name, random_blocks(kind, data.shape), raw_dtype=number)
    elif kind == "F32":
        writer.add_tensor(name, data)
    else:
        writer.add_tensor(name, gguf.quants.quantize(data, number), raw_dtype=number)


def random_blocks(kind: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Random blocks with small scales, [..., bytes of a row]: no Python code makes Q4_K and Q6_K."""
    values, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    count = math.prod(shape) // values
    noise = np.random.default_rng(count)
    blocks = noise.integers(0, 256, (count, nbytes), np.uint8)
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for place in places.get(kind, (0, 2) if kind in ("Q4_1", "Q5_1") else (0,)):
        scales = noise.uniform(0.0005, 0.002, count).astype(np.float16)
        blocks[:, place : place + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks.reshape(*shape[:-1], -1)


def _add_sizes(writer: Any, arch: str, config: Any) -> None:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch == "qwen3moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if arch in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(getattr(config, "sliding_window", None) or 0)
    if arch in ("gemma2", "gemma3"):
        writer.add_sliding_window_pattern([one == "sliding_attention" for one in config.layer_types])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    _add_rope(writer, arch, config, width)


def _add_rope(writer: Any, arch: str, config: Any, width: int) -> None:
    rope = config.rope_parameters
    far = rope.get("full_attention", rope)
    writer.add_rope_dimension_count(int(width * far.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(far["rope_theta"])
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    kind = far["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(far["factor"])
    if kind in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(far["original_max_position_embeddings"])
    if kind == "longrope":
        scale = config.max_position_embeddings / far["original_max_position_embeddings"]
        factor = math.sqrt(1 + math.log(scale) / math.log(far["original_max_position_embeddings"]))
        writer.add_rope_scaling_attn_factors(factor)


def _rope_tensors(config: Any) -> dict[str, list[float]]:
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{kind}.weight": rope[f"{kind}_factor"] for kind in ("long", "short")}
    if rope.get("rope_type") != "llama3":
        return {}
    context, factors = rope["original_max_position_embeddings"], []
    for index in range(0, config.head_dim, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (index / config.head_dim)
        share = (context / length - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        share = min(1.0, max(0.0, share))
        factors.append(1 / ((1 - share) / rope["factor"] + share))
    return {"rope_freqs.weight": factors}


def add_letters(writer: Any, count: int) -> None:
    """A vocabulary of `count` tokens with one merge."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    letters = [*(chr(0x21 + index) for index in range(94)), "ab"]
    tokens = [letters[index] if index < len(letters) else f"<{index}>" for index in range(count)]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * count)
    writer.add_token_merges(["a b"])


def add_byte_level(writer: Any, tokenizer: Tokenizer, pre: str | None, count: int = 0, **ids: int) -> None:
    """The vocabulary of a byte-level BPE; `ids` are those with a role, such as bos."""
    spec = json.loads(tokenizer.to_str())
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    added = tokenizer.get_added_tokens_decoder()
    count = max(count, 1 + max(texts))
    tokens, kinds = [], []
    for number in range(count):
        tokens.append(texts.get(number, f"[PAD{number}]"))
        token = added.get(number)
        kinds.append(5 if number not in texts else 1 if token is None else 3 if token.special else 4)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = spec["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    _add_ids(writer, ids)


def add_sentencepiece(
    writer: Any, pieces: Sequence[tuple[str, float, int]], *, space: bool = True, **ids: int
) -> None:
    """The vocabulary of a SentencePiece model: text, score and kind of each piece."""
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_add_space_prefix(space)
    _add_ids(writer, ids)


def _add_ids(writer: Any, ids: Mapping[str, int]) -> None:
    for role, number in ids.items():
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", number)
