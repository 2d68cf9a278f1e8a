"""Draft heads as torch modules, for training: an EAGLE-3 head, Medusa heads, and the target that they read.

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
from typing import Any

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


class Eagle3(nn.Module):
    """An EAGLE-3 head. Its parameters have the names and shapes of the reference's file.

    `vocabulary` [D]: the target's ids of the draft vocabulary, in ascending order. At first `lm_head` has
    the target's rows, and the other matrices are random.
    """

    weights_file = "model.safetensors"

    def __init__(self, target: Target, taps: Sequence[int], vocabulary: Tensor, inner: int) -> None:
        super().__init__()
        config = target.config
        self.taps, self.vocabulary, self._embed = tuple(taps), vocabulary, [target.embed]  # not a submodule
        self.eps = getattr(config, "rms_norm_eps", None) or 1e-5
        self.theta = float((getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10_000.0))
        width, heads = config.hidden_size, config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        size = getattr(config, "head_dim", None) or width // heads
        self.sizes = (width, inner, heads, kv_heads, size)
        shapes = {"q_proj": heads * size, "k_proj": kv_heads * size, "v_proj": kv_heads * size}
        attention = {name: nn.Linear(2 * width, rows, bias=False) for name, rows in shapes.items()}
        attention["o_proj"] = nn.Linear(heads * size, width, bias=False)
        mlp = {name: nn.Linear(width, inner, bias=False) for name in ("gate_proj", "up_proj")}
        mlp["down_proj"] = nn.Linear(inner, width, bias=False)
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        self.fc = nn.Linear(len(taps) * width, width, bias=False)
        layer = {name: nn.RMSNorm(width, self.eps) for name in norms}
        blocks = {"self_attn": nn.ModuleDict(attention), "mlp": nn.ModuleDict(mlp)}
        self.midlayer = nn.ModuleDict(layer | blocks)
        self.norm = nn.RMSNorm(width, self.eps)
        self.lm_head = nn.Linear(width, len(vocabulary), bias=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
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
            middle = feature + self._attention(both, i, past)
            normed = layer["post_attention_layernorm"](middle)
            gate = functional.silu(layer["mlp"]["gate_proj"](normed)) * layer["mlp"]["up_proj"](normed)
            feature = middle + layer["mlp"]["down_proj"](gate)
            logits.append(self.lm_head(self.norm(feature)))
        return logits

    def _attention(self, given: Tensor, i: int, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the attention of recursion i [B, N, H]; its keys and values are appended to `past`."""
        parts, (_, _, heads, kv_heads, size) = self.midlayer["self_attn"], self.sizes
        number = given.shape[1]
        query, key, value = (
            parts[name](given).unflatten(-1, (-1, size)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        query, key = (self._turned(each, i) for each in (query, key))
        past.append(
            (key.repeat_interleave(heads // kv_heads, 1), value.repeat_interleave(heads // kv_heads, 1))
        )
        (keys, values), *own = ((key[:, :, :number], value[:, :, :number]) for key, value in past)
        later = torch.ones(number, number, dtype=torch.bool, device=given.device).triu(1)
        scores = (query @ keys.mT).masked_fill(later, -torch.inf)
        scores = torch.cat([scores, *((query * key).sum(-1, keepdim=True) for key, _ in own)], -1)
        weights = (scores / math.sqrt(size)).softmax(-1)
        total = weights[..., :number] @ values
        for j, (_, value) in enumerate(own):
            total = total + weights[..., number + j, None] * value
        return parts["o_proj"](total.transpose(1, 2).flatten(2))

    def _turned(self, given: Tensor, i: int) -> Tensor:
        """Return [B, heads, N, size] with rotary positions i, i + 1, ..."""
        half = given.shape[-1] // 2
        speeds = self.theta ** (-torch.arange(half, device=given.device) / half)
        angles = torch.arange(i, i + given.shape[2], device=given.device)[:, None] * speeds
        first, second = given[..., :half], given[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def config(self, target: Target) -> dict[str, Any]:
        """Return the content of config.json. The taps are at both places where loaders look for them."""
        width, inner, heads, kv_heads, size = self.sizes
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": 1,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": size,
            "hidden_act": "silu",
            "attention_bias": False,
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
            "max_position_embeddings": getattr(target.config, "max_position_embeddings", 2048),
            "vocab_size": target.head.weight.shape[0],
            "draft_vocab_size": len(self.vocabulary),
            "tie_word_embeddings": False,
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


Head = Eagle3 | Medusa


def default_taps(layers: int) -> list[int]:
    """Return the taps of an EAGLE-3 head: those of the reference, or in a shallow model a third apart."""
    return [2, layers // 2, layers - 3] if layers > 7 else sorted({layers // 3, 2 * layers // 3, layers})


def store(head: Head, weights: dict[str, Tensor], target: Target, folder: Path) -> None:
    """Write the head's folder, with weights in the format of `weights`."""
    save_file(weights | head.maps(target), folder / head.weights_file)
    (folder / head.weights_file).chmod(0o644)
    dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    content = json.dumps(head.config(target) | {"torch_dtype": dtype}, indent=2) + "\n"
    (folder / "config.json").write_text(content, encoding="utf-8")
