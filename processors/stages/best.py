"""The largest logits of each row: a few first, more for rows in which the few do not decide."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from processors.kernels.blocks import best_values, row_parts

__all__ = ["best", "cut", "enough_best", "of_row", "settled"]

# Numbers of largest logits that a CPU sorts before it sorts the whole row. A GPU sorts the whole row at once,
# without synchronisation.
_RUNGS = (128, 16384)


def best(logits: Tensor, count: int) -> Tensor:
    """Return the `count` largest values of each row, descending, [A, min(count, V)]."""
    return best_values(logits, min(count, logits.shape[1]))


def enough_best(logits: Tensor) -> Tensor:
    """Return the largest values of each row, descending [A, N], enough for most rows; on a GPU all."""
    width = logits.shape[1]
    is_wide = logits.device.type == "cpu" and width > _RUNGS[-1]
    return best(logits, _RUNGS[0] if is_wide else width)


def of_row(sums: Callable[..., Tensor], logits: Tensor, ranked: Tensor, *columns: Tensor) -> Tensor:
    """Return `sums(logits, *columns [A, 1])` [A, N]; from `ranked` alone if it has all values of each row.

    A GPU always uses all logits, because checking that would synchronise.
    """
    if logits.device.type != "cpu":
        return sums(logits, *columns)
    found = sums(ranked, *columns)
    if ranked.shape[1] < logits.shape[1]:
        at = (ranked[:, -1] > -math.inf).nonzero().squeeze(1)
        for part in row_parts(logits, len(at)):
            some = at[part]
            found[some] = sums(logits[some], *(column[some] for column in columns))
    return found


def settled(
    decide: Callable[..., tuple[Tensor, ...]], logits: Tensor, ranked: Tensor, *columns: Tensor
) -> tuple[Tensor, ...]:
    """Return the results of `decide(ranked [A, N], *columns [A, 1])`, each [A, 1], without the first.

    The first result says whether the other results are certain. Uncertain rows are decided again with more of
    their largest values, in the end with all.
    """
    is_certain, *found = decide(ranked, *columns)
    width = logits.shape[1]
    if ranked.shape[1] < width:
        at = is_certain.logical_not().squeeze(1).nonzero().squeeze(1)
        count = next((rung for rung in _RUNGS if rung > ranked.shape[1]), width)
        for part in row_parts(logits, len(at)) if len(at) else ():
            some = at[part]
            few, theirs = logits[some], [column[some] for column in columns]
            more = settled(decide, few, best(few, count), *theirs)
            for have, new in zip(found, more, strict=True):
                have[some] = new
    return tuple(found)


def cut(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the count-th largest value, and the number of its ties among the first count; all [A, 1]."""
    count = count.clamp(max=ranked.shape[1])
    threshold = ranked.gather(1, count - 1)
    return threshold, count - (ranked > threshold).sum(1, keepdim=True)
