"""Tiny random targets as folders, and layers for multi-token prediction (MTP) that ship with them.

The layers are those of a longer model: its last layers become the blocks of MTP, so their tensors have the
names and shapes of the family. `MTP` has targets whose layers gencli's decoder has, `MTP_OF_TRANSFORMERS`
others.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from tests.speculative.reference_heads import (
    LAST,
    Block,
    LayerShape,
    Mtp,
    States,
    Target,
    Weights,
    below,
    doubled,
    plain_block,
    transformers_block,
)
from tests.speculative.tiny_heads import Config, HeadFolder, Noise, Shape, Tensors, named, speculators_config

Naming = Literal["deepseek", "qwen", "qwen3.5", "mimo", "transformers", "speculators"]
# Families whose layers differ from those of Llama by more than biases, norms of heads and experts.
UNLIKE_LLAMA = ("glm4_moe", "deepseek_v3", "qwen3_next")
# Families that store the weights of norms less 1.
OFFSET_NORMS = ("qwen3_next",)
# The names of a layer's own tensors: two norms, the projection, the norm of its output.
PARTS: Mapping[Naming, tuple[str, str, str, str]] = {
    "deepseek": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "qwen": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    "qwen3.5": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    "mimo": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
    "transformers": ("enorm", "hnorm", "eh_proj", "post_norm"),
    "speculators": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
}


@dataclass(frozen=True)
class TinyTarget(HeadFolder):
    """The folder of a target, and the model in float32 as transformers computes it."""

    model: Any = None

    @property
    def shared(self) -> Target:
        """The embedding and the vocabulary projection."""
        return Target(self.model.get_input_embeddings().weight.detach(), self.model.lm_head.weight.detach())

    def states(self, ids: Sequence[int]) -> States:
        """The hidden states [len(ids), H] of a text by tap: 0 to the number of layers, and LAST."""
        inner, outputs = self.model.model, []
        hook = inner.norm.register_forward_pre_hook(lambda norm, inputs: outputs.append(inputs[0]))
        with torch.no_grad():
            found = inner(torch.tensor([list(ids)]), output_hidden_states=True)
        hook.remove()
        # The last of transformers' hidden states is behind the norm.
        hidden = [*found.hidden_states[:-1], *outputs]
        return {k: state[0] for k, state in enumerate(hidden)} | {LAST: found.last_hidden_state[0]}


@dataclass(frozen=True)
class TinyMtp:
    """A target with layers for MTP in its folder or in a `head` of their own, and their reference."""

    target: TinyTarget
    weights: Tensors
    settings: dict[str, Any]
    head: HeadFolder | None = None

    def reference(self, weights: Weights | None = None, **changes: Any) -> Mtp:
        """The reference of the layers; other weights or changed settings make layers with a fault."""
        weights = self.weights if weights is None else weights
        return Mtp(weights, self.target.shared, **self.settings | changes)


SHAPE = Shape()
_EXPERTS: Config = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED: Config = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED |= {"n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
_LATENT: Config = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
_LINEAR: Config = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
_LINEAR |= {"linear_value_head_dim": 8, "shared_expert_intermediate_size": 16}
# The configuration of transformers of a family, and what it has beside the sizes.
FAMILIES: Mapping[str, tuple[str, Config]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "mimo": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "qwen3_moe": ("Qwen3MoeConfig", _EXPERTS),
    "mellum": ("MellumConfig", _EXPERTS),
    "glm4_moe": ("Glm4MoeConfig", _ROUTED),
    "deepseek_v3": ("DeepseekV3Config", _ROUTED | _LATENT | {"v_head_dim": 8}),
    "qwen3_next": ("Qwen3NextConfig", _EXPERTS | _LINEAR),
}


def config_of(family: str, shape: Shape, num_layers: int) -> Any:
    """The configuration of a family, of transformers."""
    import transformers as hf

    name, more = FAMILIES[family]
    sizes: Config = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": num_layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads if family == "deepseek_v3" else shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 1024,
        "initializer_range": 0.25,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if family in ("qwen2", "mimo", "deepseek_v3"):
        del sizes["head_dim"]  # they compute it
    if family == "qwen3_next":
        kinds = ["linear_attention" if layer in (0, 2) else "full_attention" for layer in range(num_layers)]
        sizes["layer_types"] = kinds
    return getattr(hf, name)(**sizes, **more)


def random_model(config: Any, seed: int) -> Any:
    """A model in float32, whose biases and norms are no plain zeros and ones."""
    import transformers as hf

    torch.manual_seed(seed)
    # The implementations that take float64 too.
    config._attn_implementation = config._experts_implementation = "eager"
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.3)
        elif "norm" in name:
            weight.data += 0.2 * torch.randn_like(weight)
    return model


def files_of(model: Any) -> tuple[Config, Tensors]:
    """config.json and the tensors as transformers saves them."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
        return config, load_file(Path(folder, "model.safetensors"))


def tiny_target(family: str = "llama", shape: Shape = SHAPE, *, seed: int = 0) -> TinyTarget:
    """A random target of a family."""
    model = random_model(config_of(family, shape, shape.layers), seed)
    return target_of(model, family)


def target_of(
    model: Any, family: str, more: Mapping[str, Tensor] | None = None, **keys: object
) -> TinyTarget:
    """The target of a model, with more tensors and keys of its configuration."""
    config, tensors = files_of(model)
    config.pop("num_nextn_predict_layers", None)  # which transformers writes without such layers too
    if family == "mimo":
        config |= {"architectures": ["MiMoForCausalLM"], "model_type": "mimo"}
    return TinyTarget(config | keys, tensors | dict(more or {}), model=model)


def tiny_mtp(
    shape: Shape = SHAPE,
    *,
    naming: Naming = "deepseek",
    family: str = "llama",
    layers: int = 1,
    seed: int = 0,
) -> TinyMtp:
    """A random target with `layers` layers for MTP under the names of another kind of folder.

    "deepseek": DeepSeek-V3, GLM; "qwen" and "qwen3.5": mtp., two keys of the configuration; "mimo":
    model.mtp_layers., the feature before the token; "transformers": mtp. before the names of its module;
    "speculators": a folder of its own, [token, feature] as in "qwen".
    """
    noise, hidden, count = Noise(31 + seed), shape.hidden, shape.layers
    longer = random_model(config_of(family, shape, count + layers), seed)
    model = random_model(config_of(family, shape, count), seed)
    model.load_state_dict(longer.state_dict(), strict=False)
    _, tensors = files_of(longer)

    layer_shape = shape_of(model.config, family)
    weights, more, blocks = Tensors(), Tensors(), list[Block]()
    shares_parts = naming in ("qwen", "qwen3.5")
    for k in range(layers):
        if k == 0 or not shares_parts:
            parts = [noise.norm(hidden) - layer_shape.norm_offset for _ in range(3)]
            parts.insert(2, noise.matrix(hidden, 2 * hidden))
        own = {f"{name}.weight": part for name, part in zip(PARTS["transformers"], parts, strict=True)}
        weights |= named(f"{k}.", own)
        block = below(tensors, f"model.layers.{count + k}.")
        prefix, inner = prefixes(naming, count, k)
        published = {f"{name}.weight": part for name, part in zip(PARTS[naming], parts, strict=True)}
        more |= named(prefix, published) | named(inner, block)
        if naming == "deepseek":  # copies of the target's
            more[f"{prefix}embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
            more[f"{prefix}shared_head.head.weight"] = tensors["lm_head.weight"]
        if family in UNLIKE_LLAMA:
            module = copy.deepcopy(longer.model.layers[count + k]).double().requires_grad_(False)
            blocks.append(transformers_block(module, longer.model.rotary_emb))
        else:
            blocks.append(plain_block(doubled(block), layer_shape))

    key = {"transformers": "num_mtp_layers", "qwen3.5": "mtp_num_hidden_layers"}.get(
        naming, "num_nextn_predict_layers"
    )
    if naming == "speculators":
        target = target_of(model, family)
        config = speculators_config("mtp", target.config) | {"architectures": ["MTPDraftModel"], key: layers}
        config["transformer_layer_config"] = target.config
        head = HeadFolder(config, more)
    else:
        target, head = target_of(model, family, more, **{key: layers}), None
    settings = {"shape": layer_shape, "blocks": blocks, "hidden_first": naming == "mimo"}
    return TinyMtp(target, weights, settings, head)


def prefixes(naming: Naming, count: int, k: int) -> tuple[str, str]:
    """What stands before the names of layer k's own tensors, and before those of its block."""
    if naming in ("qwen", "qwen3.5"):
        return "mtp.", f"mtp.layers.{k}."
    if naming == "transformers":
        return f"mtp.layers.{k}.", f"mtp.layers.{k}.mtp_block."
    prefix = {"deepseek": f"model.layers.{count + k}.", "mimo": f"model.mtp_layers.{k}."}.get(
        naming, f"mtp_layers.{k}."
    )
    return prefix, prefix


def shape_of(config: Any, family: str) -> LayerShape:
    """What the reference of a layer needs of a configuration of transformers."""
    rope = config.rope_parameters
    return LayerShape(
        config.num_attention_heads,
        config.num_key_value_heads,
        theta=rope.get("full_attention", rope)["rope_theta"],
        eps=config.rms_norm_eps,
        norm_offset=float(family in OFFSET_NORMS),
        experts_used=getattr(config, "num_experts_per_tok", 0),
        are_experts_normalized=getattr(config, "norm_topk_prob", True),
    )


MtpOf = Callable[[Shape], TinyMtp]
MTP: Mapping[str, MtpOf] = {
    "deepseek llama": tiny_mtp,
    "deepseek llama of two layers": partial(tiny_mtp, layers=2),
    "deepseek qwen3_moe": partial(tiny_mtp, family="qwen3_moe"),
    "qwen qwen3": partial(tiny_mtp, naming="qwen", family="qwen3"),
    "qwen qwen3_moe of two layers": partial(tiny_mtp, naming="qwen", family="qwen3_moe", layers=2),
    "qwen3.5 qwen3": partial(tiny_mtp, naming="qwen3.5", family="qwen3"),
    "mimo": partial(tiny_mtp, naming="mimo", family="mimo"),
    "transformers qwen2": partial(tiny_mtp, naming="transformers", family="qwen2"),
    "speculators qwen3": partial(tiny_mtp, naming="speculators", family="qwen3"),
}
MTP_OF_TRANSFORMERS: Mapping[str, MtpOf] = {
    "deepseek glm4_moe": partial(tiny_mtp, family="glm4_moe"),
    "deepseek glm4_moe of two layers": partial(tiny_mtp, family="glm4_moe", layers=2),
    "deepseek deepseek_v3": partial(tiny_mtp, family="deepseek_v3"),
    "qwen qwen3_next": partial(tiny_mtp, naming="qwen", family="qwen3_next"),
    "qwen mellum": partial(tiny_mtp, naming="qwen", family="mellum"),
    "transformers mellum": partial(tiny_mtp, naming="transformers", family="mellum"),
}
