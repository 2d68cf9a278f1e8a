"""Weights packed in oneDNN's layout, on an x86 CPU: float32, and bfloat16 where the CPU computes it.

With few rows most of the time of a matrix product goes into reordering the weights. With weights reordered
once, at loading, one row takes two thirds of the time, five rows one third.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["PACKED_ROWS", "PackedLinear", "can_pack", "has_tiles", "pack"]

# Projections of Llama-like models whose weights are only read by the matrix product.
_NAMES = frozenset("q_proj k_proj v_proj o_proj qkv_proj gate_proj up_proj down_proj gate_up_proj".split())
_MIN_WEIGHTS = 2**18  # numbers in a matrix; a smaller one fits the CPU cache and gains nothing
_BF16_LIMITS = ("BF16", "FP16", "AMX", "AVX10")  # parts of the names of oneDNN's limits with bfloat16
_X86_BF16 = frozenset(("avx512_bf16", "amx_bf16"))
PACKED_ROWS = 8  # batch size that oneDNN chooses the layout for; it is correct for any


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Return whether this machine and PyTorch support packed weights of the format.

    bfloat16 needs a CPU that computes it; elsewhere the packed layout is the plain one.
    """
    if dtype != torch.float32 and not (dtype == torch.bfloat16 and _X86_BF16 & _cpu_features()):
        return False
    has_calls = all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
    return platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn and has_calls


def has_tiles() -> bool:
    """Return whether bfloat16 products use the tiles of AMX, whose sums depend on the number of rows."""
    return "amx_bf16" in _cpu_features() and all("AMX" in limit for limit in _limits())


def _cpu_features() -> set[str]:
    """Return the features that the CPU has; none if oneDNN is limited to instructions without bfloat16."""
    if not all(any(part in limit for part in _BF16_LIMITS) for limit in _limits()):
        return set()
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return {name for name, has in found.items() if has is True}


def _limits() -> list[str]:
    """Return the limits of oneDNN's instructions that the environment sets."""
    found = (os.environ.get(name, "").upper() for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"))
    return [limit for limit in found if limit not in ("", "DEFAULT", "ALL")]


class PackedLinear(nn.Module):
    """A linear layer [..., in] -> [..., out] for inference. `weight` is a meta tensor without data."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.weight = torch.empty_like(linear.weight, device="meta")
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), PACKED_ROWS)

    def forward(self, given: Tensor) -> Tensor:
        """Return the linear layer's output."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._packed, self.bias, "none", [], "")
        return made


def pack(model: nn.Module) -> Any:
    """Replace the large projections of a model in place, freeing each one's weights; return the model."""
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
        and child.weight.numel() >= _MIN_WEIGHTS
        and not child._forward_hooks
        and not child._forward_pre_hooks
    )
