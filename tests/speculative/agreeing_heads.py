"""A tiny model whose next token is mostly a function of its last one, and draft heads that know the function.

The model's embeddings are random directions, and the row of its vocabulary projection of the token that
`follows` another is that direction. Its layers add noise of the context. So heads of each kind can be written
down that agree with it often, but not always, and their drafts are accepted and rejected.

A head that reads other states than it should agrees with hardly any token. For in all states of the model
each value at an even place equals the next one, and one layer adds nothing; what of its input breaks that, a
head multiplies and adds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tests.helpers.gguf_files import add_byte_level, write_head
from tests.helpers.gguf_files import write_model as write_gguf
from tests.speculative.reference_heads import Markov
from tests.speculative.tiny_heads import (
    EPS,
    Noise,
    Shape,
    Tensors,
    TinyHead,
    dflash,
    eagle1,
    eagle3,
    layer_tensors,
    llama_config,
    medusa,
    named,
    write_tensors,
)

TINY = Path(__file__).parents[2] / "gencli" / "assets" / "tiny"
# The vocabulary is that of `tiny`, whose tokenizer the folder has. Special tokens follow no other token.
SHAPE = Shape(vocab=2048, hidden=64, inner=48, layers=6, heads=4, kv_heads=4, head_dim=16)
SPECIAL = 16  # tokens from 0 on that no token is followed by
GAIN, LAYERS, LOUD = 0.15, 0.45, 50.0  # of the vocabulary projection, of layers, of what should not be there
SILENT = 3  # the layer that adds nothing
TAPS = (3, 4, 5)  # the first two are equal; neither those before nor those behind are


@dataclass(frozen=True)
class Model:
    """The weights of the model that heads copy."""

    embedding: Tensor
    norm: Tensor
    head: Tensor
    follows: Tensor  # [V]: the likeliest token behind each


def make_model(shape: Shape = SHAPE, seed: int = 0) -> Model:
    noise = Noise(seed)
    embedding = paired(noise.matrix(shape.hidden, shape.vocab, shape.vocab**0.5)).T
    norm = noise.norm(shape.hidden)
    order = SPECIAL + torch.randperm(shape.vocab - SPECIAL, generator=noise.generator)
    follows = torch.arange(shape.vocab)
    follows[order] = order.roll(-1)  # one cycle
    head = 0.2 * noise.matrix(shape.vocab, shape.hidden)
    head[follows[order]] += GAIN * rows_of(embedding[order])
    return Model(embedding, norm, head / norm, follows)


def paired(matrix: Tensor) -> Tensor:
    """The matrix whose products have equal values at places 2 i and 2 i + 1."""
    return matrix[::2].repeat_interleave(2, 0)


def differences(noise: Noise, shape: Shape, scale: Tensor | None = None) -> Tensor:
    """A matrix [H, H] whose product y with x is loud, but zero if x / scale is paired. y / scale is paired:
    a head that reads its own output does not multiply errors of rounding again and again.
    """
    signs = torch.ones(shape.hidden)
    signs[1::2] = -1
    matrix = paired(paired(noise.matrix(shape.hidden, shape.hidden, LOUD)).T).T * signs
    return matrix if scale is None else scale[:, None] * matrix / scale


def rows_of(embedding: Tensor) -> Tensor:
    """The rows, each divided by the root of its mean square."""
    return embedding * embedding.square().mean(-1, keepdim=True).rsqrt()


def quiet_layer(
    noise: Noise, shape: Shape, *, width: int = 0, gain: float = LAYERS, qk_norm: bool = False
) -> Tensors:
    """A layer that adds little to its input, and equal values to both of a pair."""
    tensors = layer_tensors(noise, shape, width=width, qk_norm=qk_norm, gain=1.0)
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        tensors[name] = gain * paired(tensors[name])
    return tensors


def write_model(folder: Path, *, mtp: str = "", layers: int = 1, shape: Shape = SHAPE) -> Path:
    """Write the model; `mtp` ("qwen", "mimo", "deepseek") names layers for multi-token prediction, if any."""
    model, noise = make_model(shape), Noise(1)
    tensors = {
        "model.embed_tokens.weight": model.embedding,
        "model.norm.weight": model.norm,
        "lm_head.weight": model.head,
    }
    for layer in range(shape.layers):
        gain = 0.0 if layer == SILENT else LAYERS
        tensors |= named(f"model.layers.{layer}.", quiet_layer(noise, shape, gain=gain))
    config = llama_config(shape, shape.layers) | {
        "max_position_embeddings": 1024,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "head_dim": shape.head_dim,
    }
    if mtp:
        tensors |= mtp_tensors(mtp, layers, model, shape)
        config |= {"num_nextn_predict_layers": layers}
    if mtp == "qwen":
        config |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
        for layer in range(shape.layers):
            tensors |= named(f"model.layers.{layer}.", qk_norms(shape))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(TINY / name, folder / name)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def qk_norms(shape: Shape) -> Tensors:
    return {f"self_attn.{name}_norm.weight": torch.ones(shape.head_dim) for name in "qk"}


def mtp_tensors(naming: str, layers: int, model: Model, shape: Shape) -> Tensors:
    """Layers for multi-token prediction. Each one's output is about the embedding of its token."""
    noise, tensors = Noise(2), Tensors()
    names = {
        "qwen": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
        "mimo": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        "deepseek": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    }[naming]
    for layer in range(layers):
        before, prefix = {
            "qwen": ("mtp.", f"mtp.layers.{layer}."),
            "mimo": (f"model.mtp_layers.{layer}.",) * 2,
            "deepseek": (f"model.layers.{shape.layers + layer}.",) * 2,
        }[naming]
        eye, loud = torch.eye(shape.hidden), differences(noise, shape)
        fc = torch.cat((loud, eye) if naming == "mimo" else (eye, loud), 1)
        parts = (torch.ones(shape.hidden), 1 / model.norm, fc, model.norm)
        block = quiet_layer(noise, shape) | (qk_norms(shape) if naming == "qwen" else {})
        tensors |= named(prefix, block)
        tensors |= {f"{before}{name}.weight": part for name, part in zip(names, parts, strict=True)}
    return tensors


def agreeing_eagle1(model: Model, shape: Shape = SHAPE, *, is_before: bool = False) -> TinyHead:
    """Its input is the embedding as the model's last state would be; `is_before`: it reads states as they are
    before the final norm.
    """
    head, noise = eagle1(shape, bias=False), Noise(3)
    layer = quiet_layer(noise, shape)
    del layer["input_layernorm.weight"]
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        layer[name] = layer[name] * model.norm[:, None]
    tensors = named("layers.0.", layer)
    tensors["embed_tokens.weight"] = rows_of(model.embedding) * model.norm
    loud = differences(noise, shape, None if is_before else model.norm)
    tensors["fc.weight"] = torch.cat((torch.eye(shape.hidden), loud), 1)
    return replace(head, tensors=tensors)


def agreeing_eagle3(
    model: Model,
    shape: Shape = SHAPE,
    *,
    draft_vocab: int | None = None,
    taps: tuple[int, ...] = TAPS,
) -> TinyHead:
    """Its attention looks mostly at the newest entry, whose embedding it adds to a little of the feature.

    The head is one for TAPS, whatever its configuration says.
    """
    head = eagle3(shape, layout="layers", draft_vocab=draft_vocab, taps=taps, norm_before_residual=True)
    size, noise, tensors = shape.hidden, Noise(4), dict(head.tensors)
    layer, eye, none = "layers.0.", torch.eye(size), torch.zeros(size, size)
    tensors |= named(layer, quiet_layer(noise, shape, width=2 * size))
    tensors[layer + "input_layernorm.weight"] = torch.ones(size)
    tensors[layer + "hidden_norm.weight"] = torch.full((size,), 0.1)
    for name in ("q_proj", "k_proj"):
        tensors[f"{layer}self_attn.{name}.weight"] = torch.cat((2.0 * eye, none), 1)
    tensors[layer + "self_attn.v_proj.weight"] = torch.cat((eye, differences(noise, shape)), 1)
    tensors[layer + "self_attn.o_proj.weight"] = eye
    loud = differences(noise, shape).T  # no products of it are paired
    tensors["fc.weight"] = torch.cat((loud, -loud, paired(noise.matrix(size, size))), 1)
    tensors["norm.weight"] = model.norm
    rows = model.head
    if draft_vocab is not None:
        rows = rows[tensors["d2t"] + torch.arange(draft_vocab)]
    tensors["lm_head.weight"] = rows
    return replace(head, tensors=tensors)


def agreeing_medusa(
    model: Model, shape: Shape = SHAPE, *, heads: int = 4, is_before: bool = False
) -> TinyHead:
    """Head j takes the state of a token as that token, and says what follows it 2 + j times.

    `is_before`: it reads states as they are before the final norm.
    """
    head = medusa(shape, heads=heads, file="medusa_lm_head.safetensors")
    noise, tensors, token = Noise(5), Tensors(), model.follows
    scale = torch.ones(shape.hidden) if is_before else model.norm
    for number in range(heads):
        token = model.follows[token]
        tensors[f"{number}.0.linear.weight"] = differences(noise, shape, scale)
        tensors[f"{number}.0.linear.bias"] = torch.zeros(shape.hidden)
        rows = 0.2 * noise.matrix(shape.vocab, shape.hidden)
        rows[token] += GAIN * rows_of(model.embedding)
        tensors[f"{number}.1.weight"] = rows / scale
    return replace(head, tensors=tensors)


BLOCK = 6  # tokens of a block


def agreeing_dflash(model: Model, shape: Shape = SHAPE, *, is_spark: bool = False) -> TinyHead:
    """Each token of a block sees the block alone, to equal parts. What a mask so gets of masks is what it is
    itself, times -1; what is left is the newest token's embedding. So the head drafts what follows that, at
    each place. If a mask sees fewer masks, or the states are not those of TAPS, something loud is left.

    DSpark knows besides what follows the token before a draft.
    """
    markov: Markov | None = "vanilla" if is_spark else None
    head = dflash(shape, layers=1, block_size=BLOCK, taps=TAPS, speculators=True, markov=markov)
    size, noise, tensors, layer = shape.hidden, Noise(6), dict(head.tensors), "layers.0."
    # Two directions of pairs: that of masks, and that of all tokens, which queries and keys are made of.
    mask, common = torch.ones(size), torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(size // 4)
    bare = torch.eye(size) - (torch.outer(mask, mask) + torch.outer(common, common)) / size
    loud = differences(noise, shape).T  # no products of it are paired
    tensors["fc.weight"] = bare @ torch.cat((loud, -loud, paired(noise.matrix(size, size))), 1)
    tensors["hidden_norm.weight"] = torch.ones(size)
    token, gain = (2 + EPS) ** -0.5, 40.0  # of the norm of a token, of masks in values
    part = gain * 0.5**0.5 * (BLOCK - 1)
    share = part * (2 * part**2 + EPS) ** -0.5
    embedding = rows_of(model.embedding @ bare) + common
    embedding[-1] = part * (mask + common)
    tensors["embed_tokens.weight"] = embedding
    values = bare + gain * torch.outer(mask, mask) / size
    values += part / (token + share * (BLOCK - 1)) * torch.outer(common, common) / size
    query = torch.zeros(shape.heads, shape.head_dim, size)
    query[:, shape.head_dim // 2 - 1] = common / size  # what rotary positions turn least
    tensors |= named(layer, quiet_layer(noise, shape, qk_norm=True))
    tensors |= {
        f"{layer}{name}.weight": torch.ones(size) for name in ("input_layernorm", "post_attention_layernorm")
    }
    tensors |= {
        f"{layer}self_attn.{name}_norm.weight": torch.full((shape.head_dim,), 3**0.5) for name in "qk"
    }
    tensors |= {f"{layer}self_attn.{name}_proj.weight": query.flatten(0, 1) for name in "qk"}
    tensors[f"{layer}self_attn.v_proj.weight"] = values + 2e3 * differences(noise, shape)
    tensors[f"{layer}self_attn.o_proj.weight"] = -BLOCK * torch.eye(size)
    tensors["norm.weight"] = torch.ones(size)
    tensors["lm_head.weight"] = -model.head * model.norm
    config = head.config | {"markov_rank": size} if is_spark else head.config
    layers = config["transformer_layer_config"]
    layers = layers | {"rope_parameters": layers["rope_parameters"] | {"rope_theta": 1e6}}
    if is_spark:
        tensors = {name: tensor for name, tensor in tensors.items() if "confidence" not in name}
        tensors["markov_head.markov_w1.weight"] = before = rows_of(model.embedding)
        after = 3.3 * noise.matrix(shape.vocab, size)
        after[model.follows[SPECIAL:]] += 2 * GAIN * before[SPECIAL:]
        tensors["markov_head.markov_w2.weight"] = after
        config = config | {"sample_from_anchor": False}
    return replace(head, config=config | {"transformer_layer_config": layers}, tensors=tensors)


HEADS: Mapping[str, Callable[[Model], TinyHead]] = {
    "eagle1": agreeing_eagle1,
    "eagle3": agreeing_eagle3,
    "eagle3 narrow": lambda model: agreeing_eagle3(model, draft_vocab=SHAPE.vocab * 3 // 4),
    "medusa": agreeing_medusa,
    "dspark": partial(agreeing_dflash, is_spark=True),
}
# Heads that are right about their first draft alone.
FIRST: Mapping[str, Callable[[Model], TinyHead]] = {"dflash": agreeing_dflash}
# Layers within the model's own folder: the naming, and how many.
MTP: Mapping[str, tuple[str, int]] = {
    "mtp qwen": ("qwen", 1),
    "mtp mimo": ("mimo", 1),
    "mtp deepseek of two layers": ("deepseek", 2),
}
# Heads in GGUF files, and whether their model is in one too.
GGUF: Mapping[str, bool] = {"eagle3 narrow gguf": True, "dspark gguf": False}
KINDS = (*HEADS, *MTP)


@dataclass(frozen=True)
class Pair:
    """The names of a model and of its draft head, as users give them."""

    model: str
    head: str


def write_pair(kind: str, folder: Path) -> Pair:
    """Write the model of a kind and its head."""
    if kind in MTP:
        naming, layers = MTP[kind]
        return Pair(str(write_model(folder / "model", mtp=naming, layers=layers)), "mtp")
    made = {**HEADS, **FIRST}[kind.removesuffix(" gguf")](make_model())
    model = write_model(folder / "model")
    if kind not in GGUF:
        return Pair(str(model), str(made.write(folder / "head")))
    head = write_head(folder / "head.gguf", made.config, made.tensors, layers=SHAPE.layers)
    return Pair(str(gguf_of(model) if GGUF[kind] else model), str(head))


def gguf_of(folder: Path) -> Path:
    """Write the model of a folder with its tokenizer and template as a GGUF file, and return it."""
    from transformers import AutoModelForCausalLM

    def add(writer: Any, count: int) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        add_byte_level(writer, tokenizer, "gpt-2", count=count, bos=0, eos=1)
        writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))

    path = folder.with_suffix(".gguf")
    write_gguf(path, AutoModelForCausalLM.from_pretrained(folder), add_vocabulary=add)
    return path
