"""Softmax of many rows in parts, for callers that need a reduction or single values of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from processors.kernels.blocks import row_parts
from processors.kernels.operation import operation

__all__ = ["softmax_parts", "token_probability", "token_probability_torch"]


def softmax_parts(logits: Tensor, at: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice of rows, softmax) for parts of logits [R, V], or of its rows `at` [N].

    On a CPU each part overwrites the one before, as allocating memory takes longer than the softmax. For a
    negative index in `at` the result is that of an arbitrary row.
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
        else:  # row by row, without the copy of logits[at[part]]
            for place, row in enumerate(at[part].tolist()):
                torch.softmax(logits[row, None], dim=-1, out=out[place, None])
        yield part, out


def token_probability(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    """Return softmax(logits)[at[n], ids[n]] [N] float32, and 1 where at[n] is -1.

    logits [R, V] float32, ids and at [N] int64; without `at` row n is used for ids[n].
    """
    found: Tensor = (_on_gpu if logits.is_cuda else token_probability_torch)(logits, ids, at)
    return found


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


_on_gpu = operation(
    "token_probability(Tensor logits, Tensor ids, Tensor? at) -> Tensor",
    token_probability_torch,
    "processors.kernels.token_probability_triton:token_probability_triton",
)
