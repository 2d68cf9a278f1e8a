"""The stage `gumbel_mark`: the watermark of Aaronson, as in vLLM: noise from the key chooses the token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase
from processors.catalog.watermark import GumbelMarkParams
from processors.rng import row_keys, signed, stream_key, uniform
from processors.rows import Rows
from processors.upload import upload
from processors.watermarks.context import are_repeated, last_ids, num_seen
from processors.watermarks.philox import (
    LARGEST_NOISE,
    derived_key,
    gumbel_of,
    state_of,
    uniforms,
)

__all__ = ["STREAM", "GumbelMark"]

STREAM = stream_key("gumbel_mark")  # stream of the coin that chooses between two keys
_MISSING = -1  # in place of ids before the output
_NEAR = 4.0  # ids with logits within this distance of the largest are scored first


class GumbelMark(Processor[GumbelMarkParams]):
    """Mask all tokens but argmax(x - ln(-ln u)), u from the key, the last output ids and the token's id.

    Over random keys the token has the distribution softmax(x). A row whose context was used before is left
    unchanged, so the usual draw chooses its token; `deduplicate` selects where earlier contexts are searched.
    """

    name = "gumbel_mark"
    phase = Phase.GATE
    Params = GumbelMarkParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct width and scope."""
        groups: dict[tuple[int, str, int | None], list[int]] = {}
        for place, slot in enumerate(rows.host_slots):
            params = self._params(slot)
            groups.setdefault((params.width, params.deduplicate, params.history), []).append(place)
        keys = self._keys(rows)
        if len(groups) == 1:
            return _decided(logits, *self._contexts(rows), keys)
        for index in groups.values():
            at, some = upload(index, logits.device), rows.select(index)
            logits[at] = _decided(logits[at], *self._contexts(some), keys[at])
        return logits

    def _params(self, slot: int) -> GumbelMarkParams:
        return self.columns.params(slot)  # type: ignore[return-value]

    def _keys(self, rows: Rows) -> Tensor:
        """Return the key of each row [A]; with two keys the row's coin selects one."""
        pairs = [_pair(self._params(slot)) for slot in rows.host_slots]
        first, second = upload(pairs, rows.slots.device, torch.int64).unbind(1)
        coins = uniform(row_keys(rows.seeds, rows.positions, STREAM), torch.zeros_like(rows.seeds))
        shares = [self._params(slot).alpha or 0.0 for slot in rows.host_slots]
        return torch.where(coins < upload(shares, rows.slots.device, torch.float64), second, first)

    def _contexts(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the contexts [A, width], and which rows get no watermark [A], of rows with equal scopes."""
        params = self._params(rows.host_slots[0])
        width, has_prompt = params.width, params.deduplicate == "all"
        context, count = last_ids(rows, width, _MISSING)
        if params.deduplicate == "none":
            return context, torch.zeros_like(count, dtype=torch.bool)
        seen = num_seen(rows, prompt=has_prompt)
        num = seen if params.history is None else min(params.history, seen)
        ids, total = last_ids(rows, width + num, _MISSING, prompt=has_prompt)
        is_plain = are_repeated(ids, total, width)
        return context, is_plain | (count < width) if has_prompt else is_plain


def _pair(params: GumbelMarkParams) -> tuple[int, int]:
    """Return the key for tokens twice, or the two keys derived from it for `alpha`; as int64."""
    assert params.key is not None
    (key,) = params.key.numbers
    if params.alpha is None:
        return signed(key), signed(key)
    return signed(derived_key(key, "key_a")), signed(derived_key(key, "key_b"))


def _decided(logits: Tensor, context: Tensor, is_plain: Tensor, keys: Tensor) -> Tensor:
    """Return logits [A, V] with all but the decided token masked; rows `is_plain` [A] are unchanged."""
    peak = logits.amax(1, keepdim=True)
    is_plain = is_plain[:, None] | ~(peak.abs() < torch.inf)  # one token at most, or a fault
    state = state_of(keys, context)
    if logits.is_cuda:  # selecting would synchronise
        ids = torch.arange(logits.shape[1], device=logits.device)
        scores = logits.double() + gumbel_of(uniforms([word[:, None] for word in state], ids))
        winners = scores.argmax(1, keepdim=True)
    else:
        winners = _winners(logits, peak, state)
        winners = torch.where(is_plain, 0, winners)
    alone = torch.full_like(logits, -torch.inf).scatter_(1, winners, logits.gather(1, winners))
    return torch.where(is_plain, logits, alone)


def _winners(logits: Tensor, peak: Tensor, state: Sequence[Tensor]) -> Tensor:
    """Return the id of the best score of each row [A, 1], the lowest of equals; V if there is none.

    The ids near the largest logit are scored first. Other ids are scored only if their logit plus the largest
    possible noise may exceed the best score, which leaves few ids of a peaked distribution.
    """
    is_near = logits >= peak - _NEAR
    row, ids, scores = _scored(logits, is_near, state)
    best = scores.new_full((len(logits),), -math.inf).scatter_reduce_(0, row, scores, "amax")
    is_far = (logits >= (best - LARGEST_NOISE).float()[:, None]) & ~is_near
    parts = zip((row, ids, scores), _scored(logits, is_far, state), strict=True)
    row, ids, scores = (torch.cat(pair) for pair in parts)
    best.scatter_reduce_(0, row, scores, "amax")
    beyond = logits.shape[1]
    found = torch.where(scores == best[row], ids, beyond)
    return ids.new_full((len(logits),), beyond).scatter_reduce_(0, row, found, "amin")[:, None]


def _scored(logits: Tensor, mask: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, id and score [N] of the logits selected by the mask [A, V]."""
    row, ids = mask.nonzero(as_tuple=True)
    noise = gumbel_of(uniforms([word.index_select(0, row) for word in state], ids))
    return row, ids, logits[row, ids].double() + noise
