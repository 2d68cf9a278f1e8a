"""Weights in the order in which oneDNN reads them: float32 on an x86 CPU.

A product of a few rows with a plain matrix spends more time on bringing the matrix into order than on
anything else. Ordered once, at loading, one row takes two thirds of the time, five rows a third.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["PackedLinear", "can_pack", "pack"]

# The projections of Llama and its relatives, which nothing reads but the product itself.
_NAMES = frozenset("q_proj k_proj v_proj o_proj qkv_proj gate_proj up_proj down_proj gate_up_proj".split())
_LEAST = 2**18  # numbers in a matrix; a smaller one stays in the cache, where calls cost more than reading
_ROWS = 8  # that the order is chosen for; it serves all numbers


def can_pack() -> bool:
    """Whether this machine and this PyTorch have the product for it."""
    has_calls = all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
    return platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn and has_calls


class PackedLinear(nn.Module):
    """A linear layer [..., in] -> [..., out] for inference. `weight` has a shape, and no numbers."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.weight = torch.empty_like(linear.weight, device="meta")
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)

    def forward(self, given: Tensor) -> Tensor:
        """The product."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._packed, self.bias, "none", [], "")
        return made


def pack(model: nn.Module) -> Any:
    """Replace the large projections of a model in place, one after the other; what they held is given up."""
    if not can_pack():
        return model
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if name in _NAMES and isinstance(child, nn.Linear) and _is_packable(child):
                setattr(part, name, PackedLinear(child))
    return model


def _is_packable(child: nn.Linear) -> bool:
    return (
        type(child) is nn.Linear
        and child.weight.dtype == torch.float32
        and child.weight.device.type == "cpu"
        and child.weight.numel() >= _LEAST
        and not child._forward_hooks
        and not child._forward_pre_hooks
    )
