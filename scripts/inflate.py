"""Write a larger model with the same outputs as a small one, for measurements at a realistic cost.

    python scripts/inflate.py gencli/assets/tiny BIG [--hidden 1280] [--intermediate 3584] [--layers 16]
    python scripts/inflate.py HEAD BIG_HEAD [--hidden 1280] [--intermediate 3584]

Llama-shaped models only. Hidden states are padded with zeros, the results of new heads and MLP columns are
unused, new layers add zero. Logits are those of the small model except for rounding; a step costs that of a
dense model of the new size.

A draft head of the small model (EAGLE-3, DFlash or Medusa, as scripts/train_heads.py writes them) becomes
one of the large model, with the same drafts. The taps keep their numbers: states 0 to L of a small model of
L layers are those of the large one, padded, and all later states equal state L. So the head has to name its
taps: those that loaders assume (2, half of the layers, three before the end) are other states in the large
model.
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
_HEAD_KEYS = {"dflash_config", "draft_vocab_size", "medusa_num_heads"}  # in the configs of draft heads
_PROJECTIONS = ("lm_head.weight", ".1.weight")  # of EAGLE-3 and Medusa to the vocabulary


def main() -> None:
    """Write the folder and print the number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--hidden", type=int, default=1280)
    parser.add_argument("--intermediate", type=int, default=3584)
    parser.add_argument("--layers", type=int, default=16)
    told = parser.parse_args()
    if _HEAD_KEYS & json.loads((told.source / "config.json").read_text(encoding="utf-8")).keys():
        sizes = {"hidden": told.hidden, "intermediate": told.intermediate, "layers": told.layers}
        inflate_head(told.source, told.target, **sizes)
        print(f"{told.target}: a head for a hidden size of {told.hidden}")
        return
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


def inflate_head(source: Path, target: Path, *, hidden: int, intermediate: int, layers: int) -> None:
    """Write a head for the model inflated to these sizes, with the drafts of `source`."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    width, heads = config["hidden_size"], config.get("num_attention_heads")
    if heads and not heads == config["num_key_value_heads"] == width // config["head_dim"]:
        raise SystemExit("A head with attention heads like those of the small model is expected.")
    target.mkdir(parents=True, exist_ok=True)
    (file,) = source.glob("*.safetensors")
    made = {}
    for name, weight in load_file(file).items():
        if name in ("d2t", "t2d") or name.endswith(("q_norm.weight", "k_norm.weight")):
            made[name] = weight
        elif weight.dim() == 1:
            scale = math.sqrt(width / hidden) if "norm" in name else 1.0
            made[name] = _padded(weight.float() * scale, (hidden,)).to(weight.dtype)
        elif "down_proj" in name:
            made[name] = _padded(weight, (hidden, intermediate)).to(weight.dtype)
        else:  # what reads several states has a block of columns for each
            is_inner = name.endswith(("gate_proj.weight", "up_proj.weight"))
            rows = -1 if name.endswith(_PROJECTIONS) else intermediate if is_inner else hidden
            blocks = _padded(weight.unflatten(1, (-1, width)), (rows, -1, hidden))
            made[name] = blocks.flatten(1).to(weight.dtype)
    save_file(made, target / file.name)
    sizes = {"hidden_size": hidden}
    if "num_target_layers" in config:
        sizes |= {"num_target_layers": layers}
    if "intermediate_size" in config:
        heads = hidden // config["head_dim"]
        sizes |= {"intermediate_size": intermediate, "num_attention_heads": heads}
        sizes |= {"num_key_value_heads": heads, "rms_norm_eps": config["rms_norm_eps"] * width / hidden}
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
