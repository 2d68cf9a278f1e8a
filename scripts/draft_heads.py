"""Draft heads as torch modules, for training: an EAGLE-3 or DFlash head, Medusa heads, and their target.

Notation: B texts, T tokens, H width of the target, V its vocabulary, D the draft vocabulary. Entry t of an
EAGLE-3 head has the states of token t and the embedding of token t + 1, and drafts token t + 2. Its recursion
i = 1, 2, ... has the head's own output in place of the states, and token t + 1 + i.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from gencli.models.hf_runner import load_model

LAST = -1  # the tap behind the final norm


class Target:
    """The model that the heads draft for. Its weights do not change."""

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.model, *_ = load_model(name, dtype="auto", device=device, trust_remote_code=False)
        self.config = self.model.eval().requires_grad_(False).config.get_text_config(decoder=True)
        self.num_layers = self.config.num_hidden_layers
        lists = (part for part in self.model.modules() if isinstance(part, nn.ModuleList))
        self.layers = next(part for part in lists if len(part) == self.num_layers)
        self.head, self.embed = self.model.get_output_embeddings(), self.model.get_input_embeddings()

    @torch.no_grad()
    def read(self, ids: Tensor, taps: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return states [B, T, taps * H], and logits [B, T, V].

        Tap 0 is what layer 0 reads, tap k what layer k - 1 gives, before any final norm; LAST is what the
        vocabulary projection reads.
        """
        kept = dict[int, Tensor]()

        def keep(tap: int) -> Callable[..., None]:
            def hook(module: nn.Module, *given: Any) -> None:  # the inputs, or the inputs and the output
                kept[tap] = given[-1][0] if isinstance(given[-1], tuple) else given[-1]

            return hook

        hooks = [self.head.register_forward_pre_hook(keep(LAST))]
        hooks += [self.layers[0].register_forward_pre_hook(keep(0))]
        hooks += [self.layers[tap - 1].register_forward_hook(keep(tap)) for tap in taps if tap > 0]
        try:
            logits = self.model(input_ids=ids, use_cache=False).logits
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat([kept[tap] for tap in taps], -1).float(), logits.float()


class Shape(NamedTuple):
    """The sizes of a head's layers, which are mostly the target's."""

    width: int
    inner: int
    heads: int
    kv_heads: int
    size: int
    eps: float
    theta: float

    @classmethod
    def of(cls, target: Target, inner: int) -> Shape:
        config = target.config
        width, heads = config.hidden_size, config.num_attention_heads
        return cls(
            width,
            inner,
            heads,
            getattr(config, "num_key_value_heads", None) or heads,
            getattr(config, "head_dim", None) or width // heads,
            getattr(config, "rms_norm_eps", None) or 1e-5,
            float((getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10_000.0)),
        )

    def config(self, target: Target, layers: int) -> dict[str, Any]:
        """Return what config.json says of the layers."""
        return {
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.size,
            "hidden_act": "silu",
            "attention_bias": False,
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
            "max_position_embeddings": getattr(target.config, "max_position_embeddings", 2048),
            "vocab_size": target.head.weight.shape[0],
            "tie_word_embeddings": False,
        }


def make_layer(
    shape: Shape, inputs: int, *, norms: Sequence[str] = (), has_qk_norm: bool = False
) -> nn.ModuleDict:
    """Return a layer whose attention reads `inputs` numbers of a token, with further norms of the width."""
    width, size = shape.width, shape.size
    rows = {"q_proj": shape.heads * size, "k_proj": shape.kv_heads * size, "v_proj": shape.kv_heads * size}
    attention: dict[str, nn.Module] = {
        name: nn.Linear(inputs, count, bias=False) for name, count in rows.items()
    }
    attention["o_proj"] = nn.Linear(shape.heads * size, width, bias=False)
    if has_qk_norm:
        attention |= {f"{name}_norm": nn.RMSNorm(size, shape.eps) for name in "qk"}
    mlp = {name: nn.Linear(width, shape.inner, bias=False) for name in ("gate_proj", "up_proj")}
    mlp["down_proj"] = nn.Linear(shape.inner, width, bias=False)
    names = ("input_layernorm", *norms, "post_attention_layernorm")
    layer = {name: nn.RMSNorm(width, shape.eps) for name in names}
    return nn.ModuleDict(layer | {"self_attn": nn.ModuleDict(attention), "mlp": nn.ModuleDict(mlp)})


def make_small(head: nn.Module) -> None:
    """Give the matrices of a head small random numbers."""
    for weight in head.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)


def heads_of(parts: nn.ModuleDict, name: str, given: Tensor, shape: Shape) -> Tensor:
    """Return queries "q", keys "k" or values "v" [B, heads, N, size] of what is read [B, N, inputs]."""
    made: Tensor = parts[f"{name}_proj"](given).unflatten(-1, (-1, shape.size)).transpose(1, 2)
    if f"{name}_norm" in parts:
        made = parts[f"{name}_norm"](made)
    return made if name == "q" else made.repeat_interleave(shape.heads // shape.kv_heads, 1)


def turned(given: Tensor, places: Tensor, shape: Shape) -> Tensor:
    """Return [B, heads, N, size] with the rotary positions `places` [N]."""
    half = given.shape[-1] // 2
    angles = places[:, None] * shape.theta ** (-torch.arange(half, device=given.device) / half)
    first, second = given[..., :half], given[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def fed_forward(layer: nn.ModuleDict, middle: Tensor) -> Tensor:
    """Return the output of a layer for the sum behind its attention."""
    normed, mlp = layer["post_attention_layernorm"](middle), layer["mlp"]
    gate = functional.silu(mlp["gate_proj"](normed)) * mlp["up_proj"](normed)
    out: Tensor = middle + mlp["down_proj"](gate)
    return out


class Eagle3(nn.Module):
    """An EAGLE-3 head. Its parameters have the names and shapes of the reference's file.

    `vocabulary` [D]: the target's ids of the draft vocabulary, in ascending order. At first `lm_head` has
    the target's rows, and the other matrices are random.
    """

    weights_file = "model.safetensors"

    def __init__(self, target: Target, taps: Sequence[int], vocabulary: Tensor, inner: int) -> None:
        super().__init__()
        self.shape, width = Shape.of(target, inner), target.config.hidden_size
        self.taps, self.vocabulary, self._embed = tuple(taps), vocabulary, [target.embed]  # not a submodule
        self.fc = nn.Linear(len(taps) * width, width, bias=False)
        self.midlayer = make_layer(self.shape, 2 * width, norms=["hidden_norm"])
        self.norm = nn.RMSNorm(width, self.shape.eps)
        self.lm_head = nn.Linear(width, len(vocabulary), bias=False)
        make_small(self)
        with torch.no_grad():
            self.lm_head.weight.copy_(target.head.weight[vocabulary])

    def forward(self, states: Tensor, ids: Tensor, drafts: int) -> list[Tensor]:
        """Return logits [B, T - 1 - i, D] of draft i of each entry.

        Given are the states [B, T, taps * H] and the ids [B, T] of texts.
        In recursion i an entry attends to the entries before it, made of states, and to its own recursions:
        what is in the KV cache when the entry is the newest.
        """
        feature, layer = self.fc(states), self.midlayer
        past, logits = list[tuple[Tensor, Tensor]](), list[Tensor]()
        for i in range(drafts):
            feature = feature[:, : ids.shape[1] - 1 - i]
            token = layer["input_layernorm"](self._embed[0](ids[:, 1 + i :]).float())
            both = torch.cat([token, layer["hidden_norm"](feature)], -1)
            feature = fed_forward(layer, feature + self._attention(both, i, past))
            logits.append(self.lm_head(self.norm(feature)))
        return logits

    def _attention(self, given: Tensor, i: int, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the attention of recursion i [B, N, H]; its keys and values are appended to `past`."""
        parts, shape, number = self.midlayer["self_attn"], self.shape, given.shape[1]
        places = torch.arange(i, i + number, device=given.device)
        query, key = (turned(heads_of(parts, name, given, shape), places, shape) for name in "qk")
        past.append((key, heads_of(parts, "v", given, shape)))
        (keys, values), *own = ((key[:, :, :number], value[:, :, :number]) for key, value in past)
        later = torch.ones(number, number, dtype=torch.bool, device=given.device).triu(1)
        scores = (query @ keys.mT).masked_fill(later, -torch.inf)
        scores = torch.cat([scores, *((query * key).sum(-1, keepdim=True) for key, _ in own)], -1)
        weights = (scores / math.sqrt(shape.size)).softmax(-1)
        total = weights[..., :number] @ values
        for j, (_, value) in enumerate(own):
            total = total + weights[..., number + j, None] * value
        return parts["o_proj"](total.transpose(1, 2).flatten(2))

    def config(self, target: Target) -> dict[str, Any]:
        """Return the content of config.json. The taps are at both places where loaders look for them."""
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            **self.shape.config(target, layers=1),
            "draft_vocab_size": len(self.vocabulary),
            "norm_before_residual": False,
            "eagle_aux_hidden_state_layer_ids": list(self.taps),
            "eagle_config": {
                "eagle_aux_hidden_state_layer_ids": list(self.taps),
                "use_aux_hidden_state": True,
            },
        }

    def maps(self, target: Target) -> dict[str, Tensor]:
        """Return d2t [D], what is added to a draft id, and t2d [V], whether a token can be drafted."""
        ids, size = self.vocabulary.cpu(), target.head.weight.shape[0]
        if len(ids) == size:
            return {}
        can = torch.zeros(size, dtype=torch.bool).index_fill_(0, ids, True)
        return {"d2t": ids - torch.arange(len(ids)), "t2d": can}


class DFlash(nn.Module):
    """A DFlash head of `layers` layers. Its parameters have the names and shapes of the reference's file.

    The block of entry t is token t + 1 and `drafts` masks, for which the token `mask` stands. Embedding and
    vocabulary projection are the target's.
    """

    weights_file = "model.safetensors"

    def __init__(
        self, target: Target, taps: Sequence[int], inner: int, *, layers: int, drafts: int, mask: int
    ) -> None:
        super().__init__()
        self.shape, width = Shape.of(target, inner), target.config.hidden_size
        self.taps, self.drafts, self.mask = tuple(taps), drafts, mask
        self.vocabulary = torch.arange(target.head.weight.shape[0], device=target.head.weight.device)
        self._ends = [target.embed, target.head]  # not submodules
        self.fc = nn.Linear(len(taps) * width, width, bias=False)
        self.hidden_norm = nn.RMSNorm(width, self.shape.eps)
        self.layers = nn.ModuleList([make_layer(self.shape, width, has_qk_norm=True) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, self.shape.eps)
        make_small(self)

    def forward(self, states: Tensor, ids: Tensor, drafts: int) -> list[Tensor]:
        """Return logits [B, T - 1 - i, V] of draft i of each entry, all blocks side by side.

        Given are the states [B, T, taps * H] and the ids [B, T] of texts.
        """
        context, (embed, head) = self.hidden_norm(self.fc(states)), self._ends
        blocks = torch.full((*ids[:, 1:].shape, self.drafts + 1), self.mask, device=ids.device)
        blocks[..., 0] = ids[:, 1:]
        x = embed(blocks.flatten(1)).float()  # [B, (T - 1) * (1 + drafts), H]
        for layer in self.layers:
            x = fed_forward(layer, x + self._attention(layer, layer["input_layernorm"](x), context))
        rows = self.norm(x).unflatten(1, blocks.shape[1:])
        weight = head.weight.to(rows.dtype)
        return [functional.linear(rows[:, : ids.shape[1] - 1 - i, 1 + i], weight) for i in range(drafts)]

    def _attention(self, layer: nn.ModuleDict, given: Tensor, context: Tensor) -> Tensor:
        """Return the attention of blocks [B, N * K, H] over the context [B, T, H] before each, and itself."""
        parts, shape, size = layer["self_attn"], self.shape, self.drafts + 1
        number = given.shape[1] // size
        before, numbers = (
            torch.arange(context.shape[1], device=given.device),
            torch.arange(size, device=given.device),
        )
        places = (before[1:, None] + numbers).flatten()
        query, key = (turned(heads_of(parts, name, given, shape), places, shape) for name in "qk")
        past = turned(heads_of(parts, "k", context, shape), before, shape)
        hidden = before >= before[1:].repeat_interleave(size)[:, None]  # [N * K, T]
        scores = (query @ past.mT).masked_fill(hidden, -torch.inf)
        query, key = (each.unflatten(2, (number, size)) for each in (query, key))
        scores = torch.cat([scores, (query @ key.mT).flatten(2, 3)], -1)
        weights = (scores / math.sqrt(shape.size)).softmax(-1)
        total = weights[..., : len(before)] @ heads_of(parts, "v", context, shape)
        own = weights[..., len(before) :].unflatten(2, (number, size))
        value = heads_of(parts, "v", given, shape).unflatten(2, (number, size))
        return parts["o_proj"]((total + (own @ value).flatten(2, 3)).transpose(1, 2).flatten(2))

    def config(self, target: Target) -> dict[str, Any]:
        """Return the content of config.json. The reference counts the layers whose outputs are read."""
        layers = len(self.layers)
        choices = {"mask_token_id": self.mask, "target_layer_ids": [tap - 1 for tap in self.taps]}
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            **self.shape.config(target, layers),
            "layer_types": ["full_attention"] * layers,
            "block_size": self.drafts + 1,
            "num_target_layers": target.num_layers,
            "dflash_config": choices,
        }

    def maps(self, target: Target) -> dict[str, Tensor]:
        """Return no further tensors."""
        return {}


class Medusa(nn.Module):
    """Medusa heads. Head i drafts token t + 2 + i from the last states of token t."""

    weights_file = "medusa_lm_head.safetensors"
    taps = (LAST,)

    def __init__(self, target: Target, drafts: int) -> None:
        super().__init__()
        width, size = target.config.hidden_size, target.head.weight.shape[0]
        self.vocabulary = torch.arange(size, device=target.head.weight.device)
        for i in range(drafts):
            linear, head = nn.Linear(width, width), nn.Linear(width, size, bias=False)
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
            head.weight.data.copy_(target.head.weight)
            self.add_module(str(i), nn.ModuleList([nn.ModuleDict({"linear": linear}), head]))

    def forward(self, states: Tensor, ids: Tensor, drafts: int) -> list[Tensor]:
        """Return logits [B, T - 1 - i, V] of head i."""
        logits = list[Tensor]()
        for i, (block, head) in enumerate(itertools.islice(self.children(), drafts)):
            given = states[:, : ids.shape[1] - 1 - i]
            logits.append(head(given + functional.silu(block["linear"](given))))
        return logits

    def config(self, target: Target) -> dict[str, Any]:
        """Return the content of config.json."""
        sizes = {"hidden_size": target.config.hidden_size, "vocab_size": len(self.vocabulary)}
        kind = {"medusa_num_heads": len([*self.children()]), "medusa_num_layers": 1}
        return kind | sizes | {"base_model_name_or_path": target.name}

    def maps(self, target: Target) -> dict[str, Tensor]:
        """Return no further tensors."""
        return {}


Head = Eagle3 | DFlash | Medusa


def default_taps(layers: int) -> list[int]:
    """Return the taps of a head: those of EAGLE-3's reference, or in a shallow model a third apart."""
    return [2, layers // 2, layers - 3] if layers > 7 else sorted({layers // 3, 2 * layers // 3, layers})


def store(head: Head, weights: dict[str, Tensor], target: Target, folder: Path) -> None:
    """Write the head's folder, with weights in the format of `weights`."""
    save_file(weights | head.maps(target), folder / head.weights_file)
    (folder / head.weights_file).chmod(0o644)
    dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    content = json.dumps(head.config(target) | {"torch_dtype": dtype}, indent=2) + "\n"
    (folder / "config.json").write_text(content, encoding="utf-8")
