"""Folders of tiny random draft heads in the published layouts, each with its reference.

A head is made for the `Shape` of a target. `HEADS` has those that draft; `odd_heads` has those that have to
be refused, and `tiny_targets` the targets and the layers that ship inside one. The eps and theta of heads are
not those of targets, and an embedding or vocabulary projection of a head is its own: what reads the wrong one
gives other logits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from tests.speculative.reference_heads import (
    LAST,
    DFlash,
    Eagle1,
    Eagle3,
    LayerShape,
    Markov,
    Medusa,
    Reference,
    Target,
    Weights,
)

Config = dict[str, Any]
Tensors = dict[str, Tensor]
Layout = Literal["reference", "layers", "model", "speculators"]

EPS, THETA = 1e-3, 500.0  # of heads
GAIN = 1.0  # of vocabulary projections: about the deviation of logits
RANK, WINDOW = 6, 7  # of DSpark's Markov head, and of sliding windows
LAYER_GAIN = 1.4  # so that a layer says more than the residual, and drafts vary


@dataclass(frozen=True)
class Shape:
    """The sizes of a target, and of the layers of a head for it."""

    vocab: int = 120
    hidden: int = 32
    inner: int = 48
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8

    @property
    def taps(self) -> tuple[int, ...]:
        """The states that EAGLE-3 reads if its configuration names none."""
        return (2, self.layers // 2, self.layers - 3)


@dataclass(frozen=True)
class HeadFolder:
    """config.json and tensors of a folder, under their published names."""

    config: Config
    tensors: Tensors
    file: str = "model.safetensors"

    def write(self, folder: Path) -> Path:
        """Write the folder, and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config, indent=2), encoding="utf-8")
        write_tensors(folder / self.file, self.tensors)
        return folder


@dataclass(frozen=True, kw_only=True)
class TinyHead(HeadFolder):
    """The folder of a head, and the class, weights and settings of its reference."""

    kind: Callable[..., Reference]
    weights: Tensors
    settings: dict[str, Any] = field(default_factory=dict)

    def reference(self, target: Target, weights: Weights | None = None, **changes: Any) -> Reference:
        """The head's reference; other weights or changed settings make a head with a fault."""
        weights = self.weights if weights is None else weights
        return self.kind(weights, target, **self.settings | changes)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, or with any other suffix as a state dict of torch."""
    from safetensors.torch import save_file

    # Copies of one tensor under two names share memory, which safetensors refuses.
    copies = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    if path.suffix == ".safetensors":
        save_file(copies, path)
    else:
        torch.save(copies, path)


class Noise:
    """Random tensors of one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Tensor:
        """[rows, columns], whose products with values of deviation 1 have the deviation `gain`."""
        return torch.randn(rows, columns, generator=self.generator) * (gain / math.sqrt(columns))

    def vector(self, size: int) -> Tensor:
        """[size], as a bias."""
        return 0.3 * torch.randn(size, generator=self.generator)

    def norm(self, size: int) -> Tensor:
        """[size], as the weight of a norm."""
        return 1 + 0.3 * torch.randn(size, generator=self.generator)

    def ids(self, count: int, size: int) -> Tensor:
        """`count` different numbers below `size`, in order."""
        ids = torch.randperm(size, generator=self.generator)[:count]
        return torch.sort(ids)[0]


def layer_tensors(
    noise: Noise,
    shape: Shape,
    *,
    width: int = 0,
    qk_norm: bool = False,
    bias: bool = False,
    gain: float = LAYER_GAIN,
) -> Tensors:
    """A layer of a Llama-like model, whose attention reads `width` values (0: those of the shape)."""
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    width = width or hidden
    tensors = {
        "input_layernorm.weight": noise.norm(hidden),
        "post_attention_layernorm.weight": noise.norm(hidden),
        "self_attn.q_proj.weight": noise.matrix(queries, width, gain),
        "self_attn.k_proj.weight": noise.matrix(keys, width, gain),
        "self_attn.v_proj.weight": noise.matrix(keys, width, gain),
        "self_attn.o_proj.weight": noise.matrix(hidden, queries, gain),
        "mlp.gate_proj.weight": noise.matrix(shape.inner, hidden, gain),
        "mlp.up_proj.weight": noise.matrix(shape.inner, hidden, gain),
        "mlp.down_proj.weight": noise.matrix(hidden, shape.inner, gain),
    }
    if qk_norm:
        tensors["self_attn.q_norm.weight"] = noise.norm(shape.head_dim)
        tensors["self_attn.k_norm.weight"] = noise.norm(shape.head_dim)
    if bias:
        sizes = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": hidden}
        tensors |= {f"self_attn.{name}.bias": noise.vector(size) for name, size in sizes.items()}
    return tensors


def named(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors with a prefix before their names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def llama_config(shape: Shape, num_layers: int = 1) -> Config:
    """config.json of the layers of a head, as published heads have it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": 64,  # published ones are shorter than the target's, and bound nothing
        "num_attention_heads": shape.heads,
        "num_hidden_layers": num_layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": EPS,
        "rope_scaling": None,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.53.2",
        "use_cache": True,
        "vocab_size": shape.vocab,
    }


def layer_shape(shape: Shape) -> LayerShape:
    """The shape of layers with the eps and theta of heads."""
    return LayerShape(shape.heads, shape.kv_heads, theta=THETA, eps=EPS)


def eagle1(
    shape: Shape, *, layers: int = 1, bias: bool = True, own_embedding: bool = True, seed: int = 1
) -> TinyHead:
    """EAGLE-1, which EAGLE-2 uses too."""
    noise = Noise(seed)
    tensors = {"fc.weight": noise.matrix(shape.hidden, 2 * shape.hidden, 0.5)}
    if own_embedding:
        tensors["embed_tokens.weight"] = noise.matrix(shape.vocab, shape.hidden, math.sqrt(shape.hidden))
    if bias:
        tensors["fc.bias"] = noise.vector(shape.hidden)
    for i in range(layers):  # nothing normalizes their output
        tensors |= named(f"layers.{i}.", layer_tensors(noise, shape, gain=1.0))
    del tensors["layers.0.input_layernorm.weight"]
    config = llama_config(shape, layers) | ({} if bias else {"bias": False})
    settings = {"shape": layer_shape(shape)}
    return TinyHead(config, tensors, "pytorch_model.bin", kind=Eagle1, weights=tensors, settings=settings)


def eagle3(
    shape: Shape,
    *,
    layout: Layout = "reference",
    draft_vocab: int | None = None,
    hidden: int | None = None,
    layers: int = 1,
    head_dim: int | None = None,
    taps: tuple[int, ...] | None = None,
    uses_taps: bool = True,
    qk_norm: bool = False,
    bias: bool = False,
    own_embedding: bool = False,
    norm_before_residual: bool = False,
    norm_before_fc: bool = False,
    fc_norm: bool = False,
    norm_output: bool = False,
    logit_scale: float | None = None,
    seed: int = 3,
) -> TinyHead:
    """EAGLE-3. `hidden` is the head's own width, `taps` are written into the configuration if given.

    Layouts: "reference" (SafeAILab, SpecForge: midlayer.), "layers" (SGLang, NVIDIA: layers.0.), "model" (all
    but lm_head and the vocabulary below model.) and "speculators" (nested configuration).
    Without `uses_taps` the head reads the states behind the final norm, without fc.
    """
    noise, target_hidden = Noise(seed), shape.hidden
    shape = replace(shape, hidden=hidden or target_hidden, head_dim=head_dim or shape.head_dim)
    count = len(taps or shape.taps)
    weights = {"norm.weight": noise.norm(shape.hidden)}
    weights["lm_head.weight"] = noise.matrix(draft_vocab or shape.vocab, shape.hidden, GAIN)
    if uses_taps:
        weights["fc.weight"] = noise.matrix(shape.hidden, count * target_hidden)
    if own_embedding or shape.hidden != target_hidden:
        weights["embed_tokens.weight"] = noise.matrix(shape.vocab, shape.hidden, math.sqrt(shape.hidden))
    if norm_before_fc:
        weights["input_norm.weight"] = noise.norm(count * target_hidden)
    if fc_norm:
        weights |= {f"fc_norm.{i}.weight": noise.norm(target_hidden) for i in range(count)}
    for i in range(layers):
        width = shape.hidden if i else 2 * shape.hidden
        layer = layer_tensors(noise, shape, width=width, qk_norm=qk_norm, bias=bias)
        weights |= named(f"layers.{i}.", layer)
    weights["layers.0.hidden_norm.weight"] = noise.norm(shape.hidden)
    if draft_vocab:
        ids = noise.ids(draft_vocab, shape.vocab)
        weights["d2t"] = ids - torch.arange(draft_vocab)
        weights["t2d"] = torch.zeros(shape.vocab, dtype=torch.bool).index_fill(0, ids, True)

    options: Config = {"draft_vocab_size": draft_vocab} if draft_vocab else {}
    switches = {"norm_before_fc": norm_before_fc, "fc_norm": fc_norm, "norm_output": norm_output}
    options |= {name: True for name, is_on in switches.items() if is_on}
    if shape.hidden != target_hidden:
        options["target_hidden_size"] = target_hidden
    if logit_scale is not None:
        options["logit_scale"] = logit_scale
    config = llama_config(shape, layers) | {"attention_bias": bias}
    if head_dim:
        config["head_dim"] = head_dim
    if layout == "speculators":
        options["norm_before_residual"] = norm_before_residual
        if taps:
            options["eagle_aux_hidden_state_layer_ids"] = list(taps)
        if qk_norm:
            config |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
        config = speculators_config("eagle3", config) | options
    else:
        options |= {"norm_before_residual": True} if norm_before_residual else {}
        eagle: Config = {"eagle_aux_hidden_state_layer_ids": list(taps)} if taps else {}
        eagle |= {} if uses_taps else {"use_aux_hidden_state": False}
        options |= {"eagle_config": eagle} if eagle else {}
        config |= {"architectures": ["LlamaForCausalLMEagle3"], **options}
    settings = {
        "shape": layer_shape(shape),
        "taps": (taps or shape.taps) if uses_taps else (LAST,),
        "norm_before_residual": norm_before_residual,
        "norm_output": norm_output,
        "logit_scale": 1.0 if logit_scale is None else logit_scale,
    }
    tensors = eagle3_names(weights, layout, noise)
    file = "pytorch_model.bin" if layout == "reference" else "model.safetensors"
    return TinyHead(config, tensors, file, kind=Eagle3, weights=weights, settings=settings)


def eagle3_names(weights: Mapping[str, Tensor], layout: Layout, noise: Noise) -> Tensors:
    """The tensors of EAGLE-3 under the names of a layout, and those of its files that nothing reads."""
    tensors = dict(weights)
    if layout == "reference":
        tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in weights.items()}
        tensors["midlayer.self_attn.rotary_emb.inv_freq"] = noise.vector(4)
    if layout == "model":
        bare = ("lm_head.weight", "d2t", "t2d")
        tensors = {name if name in bare else f"model.{name}": tensor for name, tensor in weights.items()}
    if layout == "speculators":
        rows, columns = weights["lm_head.weight"].shape
        tensors["verifier_lm_head.weight"] = noise.matrix(rows, columns, GAIN)
        tensors["verifier_norm.weight"] = noise.norm(len(weights["norm.weight"]))
    return tensors


def speculators_config(kind: str, layer: Config, tokens: int = 3) -> Config:
    """config.json of a head in the format of speculators, around the configuration of its layers."""
    layer = {name: value for name, value in layer.items() if not name.startswith("rope_")}
    layer["rope_parameters"] = {"rope_theta": THETA, "rope_type": "default"}
    proposal = {"proposal_type": "greedy", "speculative_tokens": tokens}
    return {
        "architectures": [f"{kind.capitalize()}Speculator"],
        "auto_map": {"": f"{kind}.{kind.capitalize()}SpeculatorConfig"},
        "speculators_model_type": kind,
        "speculators_version": "0.6.0",
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "target"},
        },
        "transformer_layer_config": layer,
    }


def medusa(
    shape: Shape, *, heads: int = 4, layers: int = 1, file: str = "medusa_lm_head.pt", seed: int = 5
) -> TinyHead:
    """Medusa as its authors write it. The configuration says 2 heads, whatever the file has, as published."""
    noise, weights = Noise(seed), Tensors()
    for j in range(heads):
        for i in range(layers):
            weights[f"blocks.{j}.{i}.weight"] = noise.matrix(shape.hidden, shape.hidden)
            weights[f"blocks.{j}.{i}.bias"] = noise.vector(shape.hidden)
        weights[f"lm_heads.{j}.weight"] = noise.matrix(shape.vocab, shape.hidden, GAIN)
    tensors = {}
    for name, tensor in weights.items():
        kind, head, *rest = name.split(".")
        own = f"{rest[0]}.linear.{rest[1]}" if kind == "blocks" else f"{layers}.weight"
        tensors[f"{head}.{own}"] = tensor
    config = {"medusa_num_heads": 2, "medusa_num_layers": layers, "base_model_name_or_path": "target"}
    return TinyHead(config, tensors, file, kind=Medusa, weights=weights)


def medusa_vllm(
    shape: Shape,
    *,
    heads: int = 4,
    layers: int = 1,
    bias: bool = False,
    shared: bool = False,
    truncated: int | None = None,
    cuts_rows: bool = False,
    prefix: str = "",
    seed: int = 6,
) -> TinyHead:
    """Medusa as vLLM reads it.

    With `shared` all heads have one vocabulary projection. `truncated` is the size of a draft vocabulary;
    with `cuts_rows` the file has projections to the whole vocabulary, of which its rows are taken.
    """
    noise, weights, tensors = Noise(seed), Tensors(), Tensors()
    token_map = noise.ids(truncated, shape.vocab) if truncated else torch.arange(shape.vocab)
    lm_head = noise.matrix(shape.vocab, shape.hidden, GAIN)
    for j in range(heads):
        for i in range(layers):
            block = {"weight": noise.matrix(shape.hidden, shape.hidden)}
            if bias:
                block["bias"] = noise.vector(shape.hidden)
            weights |= named(f"blocks.{j}.{i}.", block)
            tensors |= named(f"{prefix}blocks.{j}.layers.{i}.", block)
        rows = lm_head if shared else noise.matrix(shape.vocab, shape.hidden, GAIN)
        weights[f"lm_heads.{j}.weight"] = rows[token_map]
        if not shared:
            tensors[f"{prefix}lm_heads.{j}.weight"] = rows if cuts_rows else rows[token_map]
    if shared:
        tensors[f"{prefix}lm_head.weight"] = lm_head if cuts_rows else lm_head[token_map]
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": shape.hidden,
        "num_heads": heads,
        "num_hidden_layers": layers,
        "vocab_size": shape.vocab,
        "truncated_vocab_size": truncated or shape.vocab,
        "medusa_fc_bias": bias,
        "original_lm_head": shared,
        "max_paths": 64,
        "topk": 10,
    }
    if truncated:
        weights["token_map"] = tensors["token_map"] = token_map
    return TinyHead(config, tensors, kind=Medusa, weights=weights)


def dflash(
    shape: Shape,
    *,
    layers: int = 3,
    block_size: int = 6,
    taps: tuple[int, ...] | None = None,
    draft_vocab: int | None = None,
    samples_anchor: bool = False,
    speculators: bool = False,
    markov: Markov | None = None,
    sliding: Sequence[int] = (),
    causal: bool = False,
    bias: bool = False,
    seed: int = 7,
) -> TinyHead:
    """DFlash, and with a kind of `markov` head DSpark.

    `taps` are indices of hidden states, which files in the format of speculators have; those of the reference
    have the numbers of the layers whose outputs these are, one less. With `speculators` the head has an
    embedding and a vocabulary projection of its own. The layers in `sliding` have a window of WINDOW tokens.
    """
    noise = Noise(seed)
    last = max(layers - 1, 1)
    taps = taps or tuple(1 + round(1 + i * (shape.layers - 4) / last) for i in range(layers))
    weights = {
        "fc.weight": noise.matrix(shape.hidden, len(taps) * shape.hidden),
        "hidden_norm.weight": noise.norm(shape.hidden),
        "norm.weight": noise.norm(shape.hidden),
    }
    for i in range(layers):
        weights |= named(f"layers.{i}.", layer_tensors(noise, shape, qk_norm=True, bias=bias))
    mask_id = shape.vocab - 1
    config = llama_config(shape, layers) | {
        "model_type": "qwen3",
        "attention_bias": bias,
        "head_dim": shape.head_dim,
        "layer_types": ["sliding_attention" if i in sliding else "full_attention" for i in range(layers)],
        "sliding_window": WINDOW if sliding else None,
        "use_sliding_window": bool(sliding),
        "max_window_layers": layers,
    }
    rows = draft_vocab or shape.vocab
    options: Config = {"causal": True} if causal else {}
    if markov is not None:
        weights |= named("markov_head.", markov_tensors(noise, shape, rows, markov))
        options |= {"markov_rank": RANK, "markov_head_type": markov, "enable_confidence_head": True}
        options |= {"confidence_head_with_markov": True}
    if speculators:
        weights["embed_tokens.weight"] = noise.matrix(shape.vocab, shape.hidden, math.sqrt(shape.hidden))
        weights["lm_head.weight"] = noise.matrix(rows, shape.hidden, GAIN)
        if draft_vocab:
            ids = noise.ids(draft_vocab, shape.vocab)
            weights["d2t"] = ids - torch.arange(draft_vocab)
            weights["t2d"] = torch.zeros(shape.vocab, dtype=torch.bool).index_fill(0, ids, True)
        kind, name = ("dspark", "DSpark") if markov else ("dflash", "DFlash")
        config = speculators_config(kind, config, block_size - (not samples_anchor)) | {
            "architectures": [f"{name}Speculator"],
            "aux_hidden_state_layer_ids": list(taps),
            "block_size": block_size,
            "draft_vocab_size": rows,
            "mask_token_id": mask_id,
            "sample_from_anchor": samples_anchor,
            "sliding_window_non_causal": False,
        }
        config |= options
    else:
        options |= {"mask_token_id": mask_id, "target_layer_ids": [tap - 1 for tap in taps]}
        options |= {"projector_type": "dspark", "attention_mode": "gqa"} if markov else {}
        name = "DSparkDraftModel" if markov else "DFlashDraftModel"
        config |= {
            "architectures": [name],
            "auto_map": {"AutoModel": f"dflash.{name}"},
            "block_size": block_size,
            "dflash_config": options,
            "num_target_layers": shape.layers,
        }
    settings = {"shape": layer_shape(shape), "taps": taps, "mask_id": mask_id, "is_causal": causal}
    settings |= {"block_size": block_size, "samples_anchor": samples_anchor, "markov": markov}
    settings |= {"windows": [WINDOW if i in sliding else None for i in range(layers)]}
    tensors = dict(weights)
    if markov is not None:
        tensors["confidence_head.proj.weight"] = noise.matrix(1, shape.hidden + RANK)
        tensors["confidence_head.proj.bias"] = noise.vector(1)
    return TinyHead(config, tensors, kind=DFlash, weights=weights, settings=settings)


def markov_tensors(noise: Noise, shape: Shape, rows: int, kind: Markov) -> Tensors:
    """The Markov head of DSpark, of rank RANK. Biases are about as large as logits."""
    hidden, rank = shape.hidden, RANK
    tensors = {
        "markov_w1.weight": noise.matrix(shape.vocab, rank, math.sqrt(rank)),
        "markov_w2.weight": noise.matrix(rows, rank, GAIN),
    }
    if kind == "gated":
        tensors |= {
            "gate_proj.weight": noise.matrix(rank, hidden + rank),
            "gate_proj.bias": noise.vector(rank),
        }
    if kind == "rnn":
        tensors["joint_proj.weight"] = noise.matrix(3 * rank, 2 * rank + hidden)
        tensors["joint_proj.bias"] = noise.vector(3 * rank)
    return tensors


def with_option(head: TinyHead, key: str, value: object) -> TinyHead:
    """A head with one more or another value in its dflash_config."""
    return replace(head, config=head.config | {"dflash_config": head.config["dflash_config"] | {key: value}})


HeadOf = Callable[[Shape], TinyHead]


def half(shape: Shape) -> int:
    """The size of a draft vocabulary."""
    return shape.vocab // 2


def with_architecture(head: TinyHead, name: str) -> TinyHead:
    """A head under another architecture; published ones of EAGLE are called LlamaForCausalLM too."""
    return replace(head, config=head.config | {"architectures": [name]})


def without_key(head: TinyHead, key: str) -> TinyHead:
    """A head whose configuration lacks a key, for which readers have a default."""
    return replace(head, config={name: value for name, value in head.config.items() if name != key})


EAGLE1: Mapping[str, HeadOf] = {
    "eagle1": eagle1,
    "eagle1 by architecture": lambda shape: replace(
        with_architecture(eagle1(shape, bias=False, own_embedding=False), "LlamaForCausalLMEagle"),
        file="model.safetensors",
    ),
    "eagle1 of two layers": partial(eagle1, layers=2),
}
EAGLE3: Mapping[str, HeadOf] = {
    "eagle3": lambda shape: eagle3(shape, draft_vocab=half(shape)),
    "eagle3 by tensors": lambda shape: with_architecture(
        eagle3(shape, draft_vocab=half(shape)), "LlamaForCausalLM"
    ),
    "eagle3 layers.0": lambda shape: eagle3(
        shape, layout="layers", draft_vocab=half(shape), taps=(1, 3, shape.layers - 2), head_dim=12
    ),
    "eagle3 model.layers.0": lambda shape: eagle3(shape, layout="model", draft_vocab=half(shape)),
    "eagle3 speculators": lambda shape: eagle3(
        shape, layout="speculators", draft_vocab=half(shape), own_embedding=True, norm_before_residual=True
    ),
    # The default of readers is true where the key is left out.
    "eagle3 speculators by default": lambda shape: without_key(
        eagle3(shape, layout="speculators", draft_vocab=half(shape), norm_before_residual=True),
        "norm_before_residual",
    ),
    "eagle3 speculators qwen3": lambda shape: eagle3(
        shape,
        layout="speculators",
        draft_vocab=half(shape),
        own_embedding=True,
        taps=(0, 2, 5, 6),
        qk_norm=True,
        head_dim=8,
        seed=12,
    ),
    "eagle3 full vocabulary": eagle3,
    "eagle3 narrow": lambda shape: eagle3(
        replace(shape, heads=shape.heads // 2, kv_heads=shape.kv_heads // 2),
        hidden=shape.hidden // 2,
        draft_vocab=half(shape),
    ),
    "eagle3 norm before fc": partial(eagle3, layout="layers", norm_before_fc=True),
    "eagle3 norm of each tap": partial(eagle3, layout="layers", fc_norm=True, norm_output=True),
    "eagle3 norm output": partial(eagle3, norm_output=True),
    "eagle3 without taps": partial(eagle3, layout="layers", uses_taps=False, seed=12),
    "eagle3 of two layers": partial(eagle3, layout="layers", layers=2),
    "eagle3 with biases": partial(eagle3, layout="layers", bias=True, logit_scale=0.5),
}
MEDUSA: Mapping[str, HeadOf] = {
    "medusa": medusa,
    "medusa safetensors": partial(medusa, layers=2, file="medusa_lm_head.safetensors"),
    "medusa vllm": partial(medusa_vllm, bias=True),
    "medusa vllm shared": partial(medusa_vllm, shared=True, prefix="medusa_heads."),
    "medusa vllm truncated": lambda shape: medusa_vllm(shape, layers=2, truncated=half(shape)),
    "medusa vllm cut": lambda shape: medusa_vllm(shape, truncated=half(shape), cuts_rows=True),
}
DFLASH: Mapping[str, HeadOf] = {
    "dflash": dflash,
    "dflash speculators": lambda shape: dflash(shape, speculators=True, draft_vocab=half(shape)),
    "dflash from anchor": partial(dflash, speculators=True, samples_anchor=True),
    "dflash of one layer": partial(dflash, layers=1, taps=(5,), bias=True),
    "dflash sliding": partial(dflash, sliding=(0, 2)),
    "dflash causal": partial(dflash, causal=True),
    "dspark": partial(dflash, markov="vanilla", samples_anchor=True, block_size=5),
    "dspark of masks": lambda shape: with_option(dflash(shape, markov="gated"), "sample_from_anchor", False),
    "dspark speculators": lambda shape: dflash(
        shape, speculators=True, samples_anchor=True, markov="rnn", draft_vocab=half(shape)
    ),
}
HEADS: Mapping[str, HeadOf] = {**EAGLE1, **EAGLE3, **MEDUSA, **DFLASH}
