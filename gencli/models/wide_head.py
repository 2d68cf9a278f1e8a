"""A vocabulary projection that computes float32 logits of a transformers model in 16 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gencli.models.decoder.products.dense import adds_wide

__all__ = ["WideHead", "widen_head"]


class WideHead(nn.Module):
    """A linear layer [..., in] -> [..., out] in float32, whatever the format of its input.

    Logits in 16 bits have exact ties: with 8 bits of precision in one of twenty steps at the top. The weights
    have 32 bits, but where products of 16 bits give their sums.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self._is_narrow = adds_wide(weight.dtype, weight.device)
        self.weight = nn.Parameter(weight if self._is_narrow else weight.float(), requires_grad=False)
        self.bias = (
            None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        )

    def forward(self, given: Tensor) -> Tensor:
        """Return the linear layer's output, float32."""
        if not self._is_narrow or given.dtype != self.weight.dtype:
            return nn.functional.linear(given.float(), self.weight.float(), self.bias)
        made = torch.mm(given.flatten(0, -2), self.weight.t(), out_dtype=torch.float32)
        made = made.view(*given.shape[:-1], -1)
        return made if self.bias is None else made.add_(self.bias)


def widen_head(model: Any) -> Any:
    """Replace the vocabulary projection of a model in 16 bits in place; return the model."""
    head = model.get_output_embeddings()
    if (
        type(head) is not nn.Linear
        or head.weight.dtype not in (torch.bfloat16, torch.float16)
        or head._forward_hooks
        or head._forward_pre_hooks
    ):
        return model
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if child is head:
                setattr(part, name, WideHead(head))
    return model
