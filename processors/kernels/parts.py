"""Split rows of logits into parts that fit a CPU's cache."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["CACHED", "row_parts"]

CACHED = 1 << 19  # logits that fit a CPU's cache together with the results


def row_parts(logits: Tensor, count: int | None = None) -> list[slice]:
    """Return slices of the rows of logits [R, V], or of `count` rows, that fit the cache; one slice on a GPU.

    A part has at least one row per thread.
    """
    count, width = len(logits) if count is None else count, logits.shape[1]
    if logits.is_cuda or count * width <= CACHED:
        return [slice(0, count)]
    together = max(torch.get_num_threads(), CACHED // width)
    return [slice(start, min(start + together, count)) for start in range(0, count, together)]
