"""The draw by inverse CDF among the kept logits of each row: a block by one uniform number, then an id in it.

Twin of inverse_triton. The uniform number is keyed by seed and position; cumulative sums are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.draws import kept
from processors.kernels.choice.facts import in_blocks
from processors.kernels.choice.parts import Control, Level, Mark, cooled, heat
from processors.kernels.choice.patches import patched
from processors.kernels.operation import operation
from processors.rng import Stream, row_keys, uniform
from processors.sampler import BLOCK, invert

__all__ = ["block_weights", "block_weights_torch", "invert_ids", "invert_ids_torch"]


def _left(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return the kept logits in blocks [R, B, BLOCK] at the temperature of the draw, -inf elsewhere."""
    peak = levels[:, Level.PEAK, None].float()
    values = cooled(logits.float(), peak, heat(controls, Control.HEAT_DRAW))
    return in_blocks(values.masked_fill(~kept(logits, controls, levels, marks), -torch.inf), -torch.inf)


def block_weights_torch(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As block_weights, in PyTorch."""
    logits = patched(logits, patches)
    top = torch.where(heat(controls, Control.HEAT_DRAW) > 0, 0, levels[:, Level.PEAK, None].float())
    values = _left(logits, controls, levels, marks) - top[..., None]
    is_mine = (controls[:, Control.INVERSE] > 0) & (marks[:, Mark.FAULT] == 0)
    return torch.where(is_mine[:, None], values.exp().sum(2), 0)


def invert_ids_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    weights: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As invert_ids, in PyTorch."""
    logits = patched(logits, patches)
    is_mine = (controls[:, Control.INVERSE] > 0) & (marks[:, Mark.FAULT] == 0)
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    block, rest = invert(weights.double(), uniform(keys, torch.zeros_like(keys)))
    inside = _left(logits, controls, levels, marks).double()[
        torch.arange(len(logits), device=logits.device), block[:, 0]
    ]
    choice, _ = invert((inside - inside.amax(1, keepdim=True)).exp(), rest)
    tokens.copy_(torch.where(is_mine, (block * BLOCK + choice)[:, 0], tokens))


block_weights = operation(
    "block_weights(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor? patches=None) "
    "-> Tensor",
    block_weights_torch,
    "processors.kernels.choice.inverse_triton:block_weights_triton",
)
"""Sum of exp(x - maximum of the row) over the kept logits of each block, [R, B] float32.

0 in failed rows and in rows that do not draw by inverse CDF.
"""

invert_ids = operation(
    "invert_ids(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor weights, Tensor seeds, "
    "Tensor positions, Tensor(a!) tokens, Tensor? patches=None) -> ()",
    invert_ids_torch,
    "processors.kernels.choice.inverse_triton:invert_ids_triton",
)
"""Write the tokens [R] int64 of the rows that draw by inverse CDF, as `Sampler` draws them."""
