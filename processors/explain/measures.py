"""Measures of rows of logits [A, V] as plain numbers; each call brings its numbers to the host at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.explain.view import Changed, Place, Weighed

__all__ = ["changed", "cut", "num_alive", "places"]


def places(logits: Tensor, tokens: Tensor, count: int) -> list[Place]:
    """Return the place of each row's token [A], with the `count` most likely ids."""
    count = min(count, logits.shape[1])
    p = logits.double().softmax(-1)
    own = logits.gather(1, tokens[:, None])
    ids = torch.arange(logits.shape[1], device=logits.device)
    better = (logits > own) | ((logits == own) & (ids < tokens[:, None]))
    entropy = torch.special.entr(p).sum(-1)
    top = logits.topk(count, -1)
    facts = torch.stack([
        p.gather(1, tokens[:, None])[:, 0], own[:, 0].double(), better.sum(-1).double(), entropy,
        num_alive(logits).double(),
    ], 1)  # fmt: skip
    weights, found = p.gather(1, top.indices).tolist(), _ordered(top.values, top.indices).tolist()
    return [
        Place(
            p=row[0],
            rank=None if row[1] == -math.inf else int(row[2]) + 1,
            logit=row[1],
            entropy=row[3],
            alive=int(row[4]),
            top=tuple((token, weight) for token, weight in zip(best, some, strict=True) if weight > 0),
            others=max(0.0, 1 - math.fsum(some)),
        )
        for row, best, some in zip(facts.tolist(), found, weights, strict=True)
    ]


def _ordered(values: Tensor, ids: Tensor) -> Tensor:
    """Return ids [A, K], sorted by descending values, with the lower id of a tie first."""
    by_id = ids.sort(dim=1)
    order = values.gather(1, by_id.indices).sort(dim=1, descending=True, stable=True).indices
    return by_id.values.gather(1, order)


def num_alive(logits: Tensor) -> Tensor:
    """Return the number of unmasked ids [A]."""
    return (logits > -math.inf).sum(-1)


def cut(before: Tensor, after: Tensor, count: int) -> tuple[list[tuple[Weighed, ...]], list[float]]:
    """Return the most likely ids that are masked in `after` only, and the probability of those it has [A].

    Both by the probabilities under `before`.
    """
    p, stays = before.double().softmax(-1), after > -math.inf
    mass = torch.where(stays, p, 0.0).sum(-1)
    top = p.masked_fill_(stays, 0.0).topk(min(count, p.shape[1]), -1)
    weights = top.values.tolist()
    found = _ordered(top.values, top.indices).tolist()
    gone = [
        tuple((token, weight) for token, weight in zip(ids, some, strict=True) if weight > 0)
        for ids, some in zip(found, weights, strict=True)
    ]
    return gone, [min(1.0, kept) for kept in mass.tolist()]


def changed(before: Tensor, after: Tensor, count: int) -> list[tuple[Changed, ...]]:
    """Return the ids whose logits changed most and are not masked, with both logits."""
    is_in = (before > -math.inf) & (after > -math.inf)
    by = torch.where(is_in, (after - before).abs(), 0.0)
    ids = by.topk(min(count, by.shape[1]), -1).indices
    rows = zip(ids.tolist(), before.gather(1, ids).tolist(), after.gather(1, ids).tolist(), strict=True)
    return [
        tuple(
            (token, old, new)
            for token, old, new in zip(*row, strict=True)
            if old != new and math.isfinite(new)
        )
        for row in rows
    ]
