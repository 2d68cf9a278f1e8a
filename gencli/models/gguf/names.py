"""Where the tensors of a safetensors checkpoint lie in a GGUF file.

llama.cpp's converter renames tensors, stacks the experts of a layer in one tensor, and adds 1 to the norms of
Gemma. For llama, granite and smollm3 it reorders the rows of queries and keys, because llama.cpp rotates
neighbouring values of their heads in place of values from both halves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gencli.models.gguf.head import GgufHead, GgufTensor

__all__ = ["Place", "places_of"]

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_EXPERTS = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
# Names of some architectures that differ from these.
_OWN = {
    "llama": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm"},
}
_TENSOR = re.compile(r"(?:blk\.(\d{1,6})\.)?(\w+)\.(weight|bias)")
_MAX_EXPERTS = 4096
# Architectures whose converter reorders rows, and those where it adds 1.
_REORDERED = ("llama", "granite", "smollm3")
_NORMS_PLUS_1 = ("gemma", "gemma2", "gemma3")


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of a tensor in the file, and what undoes the converter's changes.

    The shape is that of a safetensors checkpoint; `first` is the first row. `heads` is the number of heads
    whose rows were reordered, 0 for none. `added` is to be subtracted.
    """

    tensor: GgufTensor
    shape: tuple[int, ...]
    first: int = 0
    heads: int = 0
    added: float = 0.0


def places_of(head: GgufHead) -> dict[str, Place]:
    """Return the tensors of a file by their names in a safetensors checkpoint; unknown ones by their own."""
    arch = str(head.text("general.architecture"))
    return {name: place for tensor in head.tensors.values() for name, place in _places(head, arch, tensor)}


def _places(head: GgufHead, arch: str, tensor: GgufTensor) -> Iterator[tuple[str, Place]]:
    match = _TENSOR.fullmatch(tensor.name)
    layer, part, kind = match.groups() if match else (None, "", "")
    names = _OUTER if layer is None else _PARTS | _EXPERTS | _OWN.get(arch, {})
    prefix = "" if layer is None else f"model.layers.{layer}."
    if part not in names:
        yield tensor.name, Place(tensor, tensor.shape)
    elif part not in _EXPERTS:
        added = 1.0 if arch in _NORMS_PLUS_1 and part.endswith("norm") else 0.0
        heads = _heads(head, arch, part) if arch in _REORDERED else 0
        yield f"{prefix}{names[part]}.{kind}", Place(tensor, tensor.shape, heads=heads, added=added)
    elif len(tensor.shape) == 3 and tensor.shape[0] <= _MAX_EXPERTS:
        for number in range(tensor.shape[0]):
            name = f"{prefix}{names[part].format(number)}.{kind}"
            yield name, Place(tensor, tensor.shape[1:], first=number * tensor.shape[1])


def _heads(head: GgufHead, arch: str, part: str) -> int:
    """Return the number of heads of queries or keys, 0 for another part."""
    heads = head.count(f"{arch}.attention.head_count") or 0
    return {"attn_q": heads, "attn_k": head.count(f"{arch}.attention.head_count_kv") or heads}.get(part, 0)
