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

__all__ = ["add_byte_level", "add_letters", "add_sentencepiece", "random_blocks", "write_model"]

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
