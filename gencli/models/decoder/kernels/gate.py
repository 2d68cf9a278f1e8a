"""The gate of a feed-forward block, one launch on CUDA."""

from __future__ import annotations

from torch import Tensor

from gencli.models.decoder.activations import ACTIVATIONS
from gencli.models.decoder.spec import Activation
from processors.kernels.operation import operation

__all__ = ["gated"]


def gated(made: Tensor, activation: Activation, limit: float = 0.0) -> Tensor:
    """Return act(gate) * up, [N, I], of [N, 2 * I]: gates, then up. Both steps round to its format.

    The clamped activation is gate * sigmoid(1.702 * gate), times up + 1, with both up to `limit` and up from
    -limit on.
    """
    found: Tensor = _gated(made, activation, limit)
    return found


def _gated_torch(made: Tensor, activation: Activation, limit: float) -> Tensor:
    gate, up = made.chunk(2, -1)
    return ACTIVATIONS[activation](gate, up, limit)


_gated = operation(
    "gated(Tensor made, str activation, float limit) -> Tensor",
    _gated_torch,
    "gencli.models.decoder.kernels.gate_triton:gated",
)
