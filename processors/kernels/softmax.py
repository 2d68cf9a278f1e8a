"""The softmax of many rows of logits, for those who need little of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from processors.kernels.bitmask import has_triton
from processors.kernels.parts import row_parts

__all__ = ["softmax_parts", "token_probability", "token_probability_torch"]


def softmax_parts(logits: Tensor, at: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """The softmax of logits [R, V], or of its rows `at` [N], some at a time: their places, and it.

    On a CPU each part is overwritten by the next: new memory takes it longer than the softmax. A negative row
    is any row.
    """
    parts = row_parts(logits, None if at is None else len(at))
    if len(parts) == 1:
        yield parts[0], (logits if at is None else logits[at]).softmax(dim=-1)
        return
    buffer = logits.new_empty(parts[0].stop, logits.shape[1])
    for part in parts:
        out = buffer[: part.stop - part.start]
        if at is None:
            torch.softmax(logits[part], dim=-1, out=out)
        elif torch.get_num_threads() > 1:
            torch.softmax(logits[at[part]], dim=-1, out=out)
        else:  # without a copy, of which a softmax has no need for a single row
            for place, row in enumerate(at[part].tolist()):
                torch.softmax(logits[row, None], dim=-1, out=out[place, None])
        yield part, out


def token_probability(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    """softmax(logits)[at[n], ids[n]], and 1 where at[n] is -1: logits [R, V] float32, ids and at [N] int64.

    Without `at` there is an id for each row. The result is [N] float32.
    """
    if logits.is_cuda and has_triton():
        from processors.kernels.token_probability_triton import token_probability_triton

        return token_probability_triton(logits, ids, at)
    return token_probability_torch(logits, ids, at)


def token_probability_torch(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    """As token_probability, in PyTorch."""
    if at is None:
        return _gathered(logits, ids, None)
    found = torch.ones(len(ids), dtype=logits.dtype, device=logits.device)
    named = (at >= 0).nonzero().squeeze(1)
    found[named] = _gathered(logits, ids[named], at[named])
    return found


def _gathered(logits: Tensor, ids: Tensor, at: Tensor | None) -> Tensor:
    found = [softmax.gather(1, ids[part, None]) for part, softmax in softmax_parts(logits, at)]
    return torch.cat(found).squeeze(1)
