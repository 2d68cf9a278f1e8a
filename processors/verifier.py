"""`Verifier`: sample the tokens of a step and verify the drafts, each request by its own policy."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.draw_on_device import sampled
from processors.policy import MATCH, Verification
from processors.rejection import Proposal, rejection
from processors.rows import Rows
from processors.sampler import Sampler
from processors.upload import upload
from processors.verify import above_threshold, is_typical, verify

__all__ = ["Verifier"]

_Result = tuple[Tensor, Tensor]


class Verifier:
    """Samples the tokens of a step and accepts drafts by the policy of each request."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._policies: dict[int, Verification] = {}

    def admit(self, slot: int, verification: Verification) -> None:
        """Set the policy of a slot. Use `match` for a greedy request, as `rejection` draws at random."""
        self._policies[slot] = verification

    def fork(self, source: int, target: int) -> None:
        """Give the target slot the policy of the source."""
        self._policies[target] = self._policies[source]

    def __call__(self, logits: Tensor, rows: Rows, proposal: Proposal | None = None) -> _Result:
        """Return tokens [Q, K + 1] and the number of valid ones [Q] for logits [R, V]; see `verify`."""
        if not rows.drafts.shape[1]:
            return verify(sampled(self._sampler, logits, rows), rows)
        kinds = [self._policies.get(rows.host_slots[last], MATCH) for last in rows.lasts]
        first, *others = dict.fromkeys(kinds)
        tokens, counts = self._verify(first, logits, rows, proposal)
        for kind in others:
            other_tokens, other_counts = self._verify(kind, logits, rows, proposal)
            is_kind = upload([one == kind for one in kinds], logits.device)
            tokens = torch.where(is_kind[:, None], other_tokens, tokens)
            counts = torch.where(is_kind, other_counts, counts)
        return tokens, counts

    def _verify(self, kind: Verification, logits: Tensor, rows: Rows, proposal: Proposal | None) -> _Result:
        if kind.policy == "rejection":
            return rejection(logits, rows, self._sampler, proposal)
        also = None
        if kind.policy == "lossy-typical":
            also = is_typical(logits, rows.drafted())
        if kind.policy == "lossy-threshold":
            also = above_threshold(logits, rows.drafted(), kind.threshold)
        return verify(sampled(self._sampler, logits, rows), rows, also=also)
