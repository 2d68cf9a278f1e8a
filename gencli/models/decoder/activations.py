"""Activation functions of feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn.functional import gelu, silu

from gencli.models.decoder.spec import Activation

__all__ = ["ACTIVATIONS"]

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda given: gelu(given, approximate="tanh"),
}
