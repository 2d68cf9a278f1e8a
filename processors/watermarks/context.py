"""Watermark contexts: the last tokens of each row, and whether the context has occurred before."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.rows import Rows

__all__ = ["are_repeated", "last_ids", "num_seen"]


def num_seen(rows: Rows, *, prompt: bool = False) -> int:
    """Return the largest number of output tokens (with `prompt` of all tokens) that a row sees."""
    history, slots = rows.history, rows.host_slots
    counts = [history.length(slot) for slot in slots] if prompt else history.positions(slots)
    return max(
        (count + len(drafts) for count, drafts in zip(counts, rows.host_drafts, strict=True)), default=0
    )


def last_ids(rows: Rows, width: int, fill: int, *, prompt: bool = False) -> tuple[Tensor, Tensor]:
    """Return the last `width` output ids of each row [R, width], with `fill` in front, and their number [R].

    A row's drafts are included; with `prompt`, ids of the prompt too.
    """
    history = rows.history
    lengths = history.lengths[rows.slots]
    first = torch.zeros_like(lengths) if prompt else history.prompt_lengths[rows.slots]
    total = lengths + rows.offsets
    columns = total[:, None] + torch.arange(-width, 0, device=lengths.device)
    tokens = history.tokens
    ids = tokens[rows.slots[:, None], columns.clamp(0, tokens.shape[1] - 1)]
    num_drafts = rows.drafts.shape[1]
    if num_drafts:
        places = columns - lengths[:, None]
        ids = torch.where(places >= 0, rows.drafts.gather(1, places.clamp(0, num_drafts - 1)), ids)
    return ids.masked_fill(columns < first[:, None], fill), total - first


def are_repeated(ids: Tensor, count: Tensor, width: int, *, skip: int = 0) -> Tensor:
    """Return whether the last `width` ids were the context of an earlier token, [R] bool.

    ids [R, N]: last ids of each row. count [R]: number of tokens of each row. The N - width earlier contexts
    are compared, except those of the first `skip` tokens.
    """
    num = ids.shape[1] - width
    if num <= 0:
        return torch.zeros_like(count, dtype=torch.bool)
    position = count[:, None] + torch.arange(-num, 0, device=ids.device)
    found = position >= skip
    for place in range(width):
        found &= ids[:, place : place + num] == ids[:, num + place, None]
    return found.any(1)
