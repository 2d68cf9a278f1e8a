"""The configuration of draft heads in GGUF files: EAGLE-3, DFlash and DSpark under the keys of their folders.
The facts are those of llama.cpp's converter (https://github.com/ggml-org/llama.cpp/tree/master/conversion).
It reorders rows of queries and keys of EAGLE-3, names states of DFlash by their index where config.json has
the layers whose outputs they are, and writes ids of tokens into d2t, which has offsets in folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gencli.models.files.gguf_header import GgufArray, GgufHead
from gencli.models.files.gguf_metadata import (
    check_keys,
    check_sizes,
    layer_sizes,
    need,
    rope_config,
    window_config,
)

# Architectures, with the keys that are not of every model.
HEADS: Mapping[str, Sequence[str]] = {
    "eagle3": "target_layers extract_layers target_hidden_size norm_before_residual norm_before_fc".split(),
    "dflash": """
        target_layers target_hidden_size block_size sample_from_anchor has_confidence_head attention.causal
        attention.sliding_window attention.sliding_window_pattern rope.dimension_sections
    """.split(),
}


def head_config(head: GgufHead) -> dict[str, Any]:
    """Return the configuration that config.json would hold.

    Raises ModelError for a key that gencli does not know, and for one that is missing.
    """
    arch = str(head.text("general.architecture"))
    check_keys(head, arch, HEADS[arch])
    old = "eagle3.extract_layers"  # of early files
    states = old if old in head.values else f"{arch}.target_layers"
    if not (taps := [*(head.numbers(states) or ())]):
        raise head.wrong(states, "is missing")
    tokens, ids = head.values.get("tokenizer.ggml.tokens"), head.tensors.get("d2t")
    config = layer_sizes(head, arch) | rope_config(head, arch)
    config |= {
        "vocab_size": tokens.count if isinstance(tokens, GgufArray) else need(head, f"{arch}.vocab_size"),
        "draft_vocab_size": ids.shape[0] if ids else None,
        "target_hidden_size": head.count(f"{arch}.target_hidden_size"),
    }
    check_sizes(head, arch, config)
    if arch == "eagle3":
        config |= {
            "architectures": ["LlamaForCausalLMEagle3"],
            "eagle_aux_hidden_state_layer_ids": taps,
            "norm_before_residual": head.flag("eagle3.norm_before_residual"),
            "norm_before_fc": head.flag("eagle3.norm_before_fc"),
        }
    else:
        if any((head.numbers("dflash.rope.dimension_sections") or ())[1:]):
            raise head.wrong("dflash.rope.dimension_sections", "has more than one section")
        config |= window_config(head, arch, config["num_hidden_layers"])
        config |= {
            "architectures": [f"{'DSpark' if 'markov_w1.weight' in head.tensors else 'DFlash'}DraftModel"],
            "target_layer_ids": [state - 1 for state in taps],
            "use_sliding_window": bool(config["sliding_window"]),
            "block_size": need(head, "dflash.block_size"),
            "mask_token_id": head.count("tokenizer.ggml.mask_token_id"),
            "causal": head.flag("dflash.attention.causal"),
            "sample_from_anchor": head.flag("dflash.sample_from_anchor"),
        }
    return {key: value for key, value in config.items() if value is not None}
