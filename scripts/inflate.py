"""Write a larger model with the same outputs as a small one, for measurements at a realistic cost.

    python scripts/inflate.py gencli/assets/tiny BIG [--hidden 1280] [--intermediate 3584] [--layers 16]

Llama-shaped models only. Hidden states are padded with zeros, the results of new heads and MLP columns are
unused, new layers add zero. Logits are those of the small model except for rounding; a step costs that of a
dense model of the new size.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_NAMES = ("config.json", "model.safetensors")  # all else is copied


def main() -> None:
    """Write the folder and print the number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--hidden", type=int, default=1280)
    parser.add_argument("--intermediate", type=int, default=3584)
    parser.add_argument("--layers", type=int, default=16)
    told = parser.parse_args()
    inflate(told.source, told.target, hidden=told.hidden, intermediate=told.intermediate, layers=told.layers)
    weights = load_file(told.target / "model.safetensors")
    print(f"{told.target}: {sum(weight.numel() for weight in weights.values()) / 1e6:.0f} million parameters")


def inflate(source: Path, target: Path, *, hidden: int, intermediate: int, layers: int) -> None:
    """Write a model of these sizes with the outputs of `source`."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "llama" or config["num_attention_heads"] != config["num_key_value_heads"]:
        raise SystemExit("A Llama-shaped model with as many key as query heads is expected.")
    if hidden % config["head_dim"] or hidden < config["hidden_size"] or layers < config["num_hidden_layers"]:
        raise SystemExit("No size may shrink, and the hidden size is a multiple of the head's.")
    weights = load_file(source / "model.safetensors")
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.name not in _NAMES:
            shutil.copy(file, target / file.name)
    save_file(_weights(weights, config, hidden, intermediate, layers), target / "model.safetensors")
    heads = hidden // config["head_dim"]
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        # Zeros in the hidden state make its mean square smaller; norms take that back.
        "rms_norm_eps": config["rms_norm_eps"] * config["hidden_size"] / hidden,
    }
    (target / "config.json").write_text(json.dumps(config | sizes, indent=2) + "\n", encoding="utf-8")


def _weights(
    small: dict[str, Tensor], config: dict[str, Any], hidden: int, intermediate: int, layers: int
) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shrink = math.sqrt(config["hidden_size"] / hidden)
    large = {
        "model.embed_tokens.weight": _padded(small["model.embed_tokens.weight"], (-1, hidden)),
        "model.norm.weight": _padded(small["model.norm.weight"] * shrink, (hidden,)),
    }
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, hidden),
        "self_attn.v_proj": (hidden, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }
    for layer in range(layers):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            known = small.get(f"{name}{norm}.weight", torch.ones(config["hidden_size"]))
            large[f"{name}{norm}.weight"] = _padded(known * shrink, (hidden,))
        for part, shape in shapes.items():
            writes = part.endswith(("o_proj", "down_proj"))
            known = small.get(f"{name}{part}.weight", torch.zeros(0, 0))
            large[f"{name}{part}.weight"] = _padded(known, shape, noise=not writes)
    return large


def _padded(weight: Tensor, shape: tuple[int, ...], *, noise: bool = False) -> Tensor:
    """Return the weight in the corner of a larger one.

    The rest is zero; with `noise`, new rows are random and unused.
    """
    sizes = [have if want < 0 else want for have, want in zip(weight.shape, shape, strict=True)]
    padded = torch.zeros(sizes)
    if noise:
        padded[weight.shape[0] :] = 0.02 * torch.randn(sizes[0] - weight.shape[0], sizes[1])
    padded[tuple(slice(size) for size in weight.shape)] = weight
    return padded


if __name__ == "__main__":
    main()
