"""Activation functions of feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from gencli.models.decoder.spec import ALPHA, Activation

__all__ = ["ACTIVATIONS"]


def _clamped(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Return (up + 1) * gate * sigmoid(ALPHA * gate) of gates up to `limit` and of up within it.

    The product of gates and the whole are rounded.
    """
    wide = gate.float().clamp(max=limit)
    active = (wide * torch.sigmoid(ALPHA * wide)).to(gate.dtype)
    return (active.float() * (up.float().clamp(-limit, limit) + 1.0)).to(gate.dtype)


# Of gate, up and the limit, which the clamped one has alone.
ACTIVATIONS: Mapping[Activation, Callable[[Tensor, Tensor, float], Tensor]] = {
    "silu": lambda gate, up, limit: silu(gate).mul_(up),
    "gelu": lambda gate, up, limit: gelu(gate).mul_(up),
    "gelu_tanh": lambda gate, up, limit: gelu(gate, approximate="tanh").mul_(up),
    "clamped": _clamped,
}
