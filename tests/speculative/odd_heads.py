"""Folders of heads that have to be refused: other kinds, damaged files and a hostile pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.speculative.tiny_heads import (
    Config,
    HeadFolder,
    Layout,
    Noise,
    Shape,
    Tensors,
    TinyHead,
    dflash,
    eagle3,
    half,
    llama_config,
    medusa,
    named,
)

FolderOf = Callable[[Shape], HeadFolder]


def mlp_speculator(shape: Shape) -> HeadFolder:
    """The MLP speculator of IBM: each token of a draft has its own embedding, projection and vocabulary."""
    noise, count, inner = Noise(21), 3, shape.inner
    config = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        "emb_dim": shape.hidden,
        "inner_dim": inner,
        "n_candidates": 5,
        "n_predict": count,
        "scale_input": True,
        "tie_weights": False,
        "top_k_tokens_per_head": [5, 3, 2],
        "vocab_size": shape.vocab,
    }
    tensors: Tensors = {}
    for i in range(count):
        own = {
            f"emb.{i}.weight": noise.matrix(shape.vocab, inner),
            f"proj.{i}.weight": noise.matrix(inner, inner if i else shape.hidden),
            f"ln.{i}.weight": noise.norm(inner),
            f"ln.{i}.bias": noise.vector(inner),
            f"head.{i}.weight": noise.matrix(shape.vocab, inner),
        }
        tensors |= named("speculator.", own)
    return HeadFolder(config, tensors)


def of_dflash(shape: Shape, architecture: str, block_size: int, options: Config) -> TinyHead:
    """A head of the DFlash kind under another architecture."""
    head = dflash(shape, block_size=block_size)
    config = head.config | {"architectures": [architecture]}
    config["auto_map"] = {"AutoModel": f"{architecture.removesuffix('DraftModel').lower()}.{architecture}"}
    return replace(head, config=config | {"dflash_config": config["dflash_config"] | options})


def dflash2(shape: Shape) -> HeadFolder:
    """DFlash2: DFlash with convolutions in each layer, and a selector among candidates."""
    noise, rank, kernel, group = Noise(23), 4, 3, 8
    options: Config = {"conv_kernel_size": kernel, "conv_group_size": group, "selector_rank": rank}
    options |= {"selector_top_k": 4, "input_embedding_scale": 1.0, "output_multiplier": 1.0}
    head = of_dflash(shape, "DFlash2DraftModel", 8, options)
    more = {
        "candidate_selector.predecessor_codebook": noise.matrix(shape.vocab, rank),
        "candidate_selector.successor_codebook": noise.matrix(shape.vocab, rank),
        "candidate_selector.hidden_projection": noise.matrix(rank, shape.hidden),
    }
    for i in range(head.config["num_hidden_layers"]):
        for name in ("attention_conv", "mlp_conv"):
            rows = 2 * kernel * (shape.hidden // group)
            more[f"layers.{i}.{name}.base_kernel"] = torch.zeros(2, kernel, shape.hidden)
            more[f"layers.{i}.{name}.kernel_projection.weight"] = noise.matrix(rows, shape.hidden)
    return replace(head, tensors=head.tensors | more)


def domino(shape: Shape) -> HeadFolder:
    """Domino: DFlash with a recurrent unit over the drafts."""
    noise, width, inner = Noise(24), 8, 16
    options = {"projector_type": "domino", "pure_draft_prefix_len": 1, "emb_dim": width}
    head = of_dflash(shape, "DominoDraftModel", 8, options | {"gru_hidden_dim": inner, "shift_label": True})
    more = {
        "prefix_gru.weight_ih_l0": noise.matrix(3 * inner, width),
        "prefix_gru.weight_hh_l0": noise.matrix(3 * inner, inner),
        "embed_proj.weight": noise.matrix(width, shape.hidden),
    }
    return replace(head, config=head.config | {"emb_dim": width}, tensors=head.tensors | more)


def gemma_assistant(shape: Shape) -> HeadFolder:
    """The assistant of Gemma 4, which attends to the keys and values of its target."""
    noise, hidden = Noise(25), shape.hidden // 2
    text = llama_config(replace(shape, hidden=hidden)) | {
        "model_type": "gemma4_text",
        "layer_types": ["full_attention"],
        "num_kv_shared_layers": 1,
    }
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": shape.hidden,
        "text_config": text,
        "tie_word_embeddings": True,
        "use_ordered_embeddings": False,
    }
    tensors = {
        "model.embed_tokens.weight": noise.matrix(shape.vocab, hidden),
        "model.norm.weight": noise.norm(hidden),
        "pre_projection.weight": noise.matrix(hidden, 2 * shape.hidden),
        "post_projection.weight": noise.matrix(shape.hidden, hidden),
        "model.layers.0.input_layernorm.weight": noise.norm(hidden),
        "model.layers.0.self_attn.q_proj.weight": noise.matrix(hidden, hidden),
        "model.layers.0.self_attn.o_proj.weight": noise.matrix(hidden, hidden),
    }
    return HeadFolder(config, tensors)


def p_eagle(shape: Shape, *, speculators: bool = False) -> HeadFolder:
    """P-EAGLE: EAGLE-3 that drafts all tokens in one pass, from a mask token and a hidden state for it."""
    layout: Layout = "speculators" if speculators else "layers"
    head = eagle3(shape, layout=layout, draft_vocab=half(shape), layers=2, own_embedding=True)
    mask = {"mask_hidden": Noise(26).vector(3 * shape.hidden)[None, None]}
    kind: Config = {"architectures": ["PEagleDraftModel"], "parallel_drafting": True}
    if speculators:
        plan = head.config["speculators_config"] | {"algorithm": "peagle"}
        kind = {"architectures": ["PEagleSpeculator"], "speculators_model_type": "peagle"}
        kind |= {"speculators_config": plan}
    config = head.config | kind | {"mask_token_id": shape.vocab - 1}
    return HeadFolder(config, head.tensors | mask)


REFUSED: Mapping[str, FolderOf] = {
    "MLP speculator": mlp_speculator,
    "DFlash2": dflash2,
    "Domino": domino,
    "Gemma 4 assistant": gemma_assistant,
    "P-EAGLE": p_eagle,
    "P-EAGLE of speculators": partial(p_eagle, speculators=True),
}


def with_tensor(head: HeadFolder, name: str, tensor: torch.Tensor) -> HeadFolder:
    """The folder with one more or another tensor."""
    return replace(head, tensors=head.tensors | {name: tensor})


def without_tensor(head: HeadFolder, name: str) -> HeadFolder:
    """The folder without a tensor."""
    return replace(head, tensors={key: value for key, value in head.tensors.items() if key != name})


def with_key(head: HeadFolder, key: str, value: object) -> HeadFolder:
    """The folder with one more or another value in its configuration."""
    return replace(head, config=head.config | {key: value})


def changed(head: HeadFolder, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> HeadFolder:
    """The folder with a changed tensor."""
    return with_tensor(head, name, change(head.tensors[name]))


def small(shape: Shape) -> TinyHead:
    """The head that is damaged."""
    return eagle3(shape, layout="layers", draft_vocab=half(shape))


def moved(d2t: torch.Tensor, by: int) -> torch.Tensor:
    """Target ids less draft ids, of which the last is moved."""
    return torch.cat((d2t[:-1], d2t[-1:] + by))


_Q, _O = "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.o_proj.weight"
# Damaged folders, and the name of a tensor or key that the error has to say.
DAMAGED: Mapping[str, tuple[FolderOf, str]] = {
    "unknown tensor": (
        lambda shape: with_tensor(small(shape), "layers.0.self_attn.sinks", torch.zeros(shape.heads)),
        "layers.0.self_attn.sinks",
    ),
    "unknown layer": (
        lambda shape: with_tensor(small(shape), "layers.1.mlp.up_proj.weight", torch.zeros(4, 4)),
        "layers.1.mlp.up_proj.weight",
    ),
    "missing tensor": (lambda shape: without_tensor(small(shape), _O), _O),
    "missing fc": (lambda shape: without_tensor(small(shape), "fc.weight"), "fc.weight"),
    "missing lm_head": (lambda shape: without_tensor(small(shape), "lm_head.weight"), "lm_head.weight"),
    "wrong shape": (lambda shape: changed(small(shape), "fc.weight", lambda w: w[:, 1:]), "fc.weight"),
    "wrong width of attention": (
        lambda shape: changed(small(shape), _Q, lambda w: w[:, : shape.hidden]),
        _Q,
    ),
    "wrong dtype": (lambda shape: changed(small(shape), "fc.weight", lambda w: w.long()), "fc.weight"),
    "d2t beyond the vocabulary": (
        lambda shape: changed(small(shape), "d2t", lambda d2t: moved(d2t, shape.vocab)),
        "d2t",
    ),
    "d2t below zero": (
        lambda shape: changed(small(shape), "d2t", lambda d2t: moved(d2t, -shape.vocab)),
        "d2t",
    ),
    "short d2t": (lambda shape: changed(small(shape), "d2t", lambda d2t: d2t[:-1]), "d2t"),
    "missing d2t": (lambda shape: without_tensor(small(shape), "d2t"), "d2t"),
    "t2d contradicts d2t": (lambda shape: changed(small(shape), "t2d", lambda t2d: ~t2d), "t2d"),
    "unknown key": (lambda shape: with_key(small(shape), "attention_sink_bias", True), "attention_sink_bias"),
    "unknown activation": (lambda shape: with_key(small(shape), "hidden_act", "relu2"), "relu2"),
    "medusa without a vocabulary": (lambda shape: without_tensor(medusa(shape), "2.1.weight"), "2.1.weight"),
}


class _Opens:
    """Opens a file for writing when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.path), "w")


def write_hostile(folder: Path, head: HeadFolder, marker: Path) -> Path:
    """Write a head of torch whose pickle creates the file `marker` if it runs, and return the folder."""
    assert not head.file.endswith(".safetensors")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(head.config), encoding="utf-8")
    torch.save({**head.tensors, "hostile": _Opens(marker)}, folder / head.file)
    return folder
