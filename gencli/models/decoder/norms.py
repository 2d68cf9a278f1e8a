"""RMS norms and residual sums."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import rms_norm

__all__ = ["Norm", "normalize_heads", "residual_sum"]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm over the last dimension: x / sqrt(mean(x^2) + eps) * weight.

    With a float32 weight, values of 16 bits are rounded once, after the multiplication.
    """

    weight: Tensor
    eps: float

    def __call__(self, given: Tensor) -> Tensor:
        """Return the normalized values."""
        if self.weight.dtype != given.dtype:
            wide = given.to(self.weight.dtype)
            return rms_norm(wide, self.weight.shape, self.weight, self.eps).to(given.dtype)
        return rms_norm(given, self.weight.shape, self.weight, self.eps)


def normalize_heads(
    made: Tensor, heads: int, kv_heads: int, norms: tuple[Norm, Norm], *, is_whole: bool
) -> None:
    """Normalize queries and keys among `made` [N, Hq + 2 * Hkv, D] in place."""
    for part, norm in zip((made[:, :heads], made[:, heads : heads + kv_heads]), norms, strict=True):
        part.copy_(norm(part.flatten(1) if is_whole else part).view_as(part))


def residual_sum(states: Tensor, more: Tensor, scale: float) -> Tensor:
    """Return states + scale * more, all [N, H]; each step rounds to their format."""
    return states + (more if scale == 1.0 else more * scale)
