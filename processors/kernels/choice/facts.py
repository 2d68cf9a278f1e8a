"""Reductions over blocks of BLOCK ids: maximum, minimum, sum of exp and count of finite logits (the facts).

Twin of facts_triton. Facts bound where thresholds lie and weigh the blocks of the two-level draw. The sum of
exp may differ from the kernel's in its last bits: it enters bounds that have a margin, and Gumbel scores.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from processors.kernels.choice.parts import Control, heat
from processors.sampler import BLOCK

__all__ = ["block_facts_torch", "facts_of", "in_blocks"]


def in_blocks(values: Tensor, beyond: float) -> Tensor:
    """Return values [R, V] in blocks [R, B, BLOCK]; the last one is padded with `beyond`."""
    return pad(values, (0, -values.shape[1] % BLOCK), value=beyond).view(len(values), -1, BLOCK)


def facts_of(logits: Tensor, temperature: Tensor) -> Tensor:
    """Return the facts [R, 4, B] (see `Fact`) of logits [R, V] at a temperature [R, 1]."""
    blocks = in_blocks(logits.float(), -torch.inf)
    is_finite = blocks > -torch.inf
    top = blocks.amax(-1)
    low = torch.where(is_finite, blocks, torch.inf).amin(-1)
    base = torch.where(is_finite.any(-1), top, 0)[..., None]
    some = torch.where(temperature > 0, temperature, 1)[..., None]
    sums = ((blocks - base) / some).exp().sum(-1)
    return torch.stack([top, low, sums, is_finite.sum(-1).float()], 1)


def block_facts_torch(logits: Tensor, controls: Tensor) -> Tensor:
    """Return the facts [R, 4, B] of logits [R, V] at the temperature of the truncating stages."""
    return facts_of(logits, heat(controls, Control.HEAT_CUT))
