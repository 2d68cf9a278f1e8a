"""How many rows of logits a CPU works on together."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["CACHED", "row_parts"]

CACHED = 1 << 19  # logits that a CPU's cache takes with what is made of them


def row_parts(logits: Tensor, count: int | None = None) -> list[slice]:
    """The rows of logits [R, V], or so many of that width, in parts that the cache takes; all on a GPU.

    A part has a row for each thread at least.
    """
    count, width = len(logits) if count is None else count, logits.shape[1]
    if logits.is_cuda or count * width <= CACHED:
        return [slice(0, count)]
    together = max(torch.get_num_threads(), CACHED // width)
    return [slice(start, min(start + together, count)) for start in range(0, count, together)]
