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

    def reads(self, rows: Rows) -> bool:
        """Whether the drafts of any request are verified by logits rather than by sampled tokens alone."""
        sizes = zip(rows.lasts, rows.counts, strict=True) if rows.drafts.shape[1] else ()
        return any(size > 1 and self._policy(rows, last).policy != "match" for last, size in sizes)

    def __call__(
        self,
        logits: Tensor | None,
        rows: Rows,
        proposal: Proposal | None = None,
        sampled_tokens: Tensor | None = None,
    ) -> _Result:
        """Return tokens [Q, K + 1] and the number of valid ones [Q] for logits [R, V]; see `verify`.

        `sampled_tokens` [R]: tokens of the rows, if already sampled. With them logits are needed only if
        `reads`.
        """
        if logits is None or not rows.drafts.shape[1]:
            return verify(self.tokens(logits, rows, sampled_tokens), rows)
        kinds = [self._policy(rows, last) for last in rows.lasts]
        first, *others = dict.fromkeys(kinds)
        tokens, counts = self._verify(first, logits, rows, proposal, sampled_tokens)
        for kind in others:
            other_tokens, other_counts = self._verify(kind, logits, rows, proposal, sampled_tokens)
            is_kind = upload([one == kind for one in kinds], logits.device)
            tokens = torch.where(is_kind[:, None], other_tokens, tokens)
            counts = torch.where(is_kind, other_counts, counts)
        return tokens, counts

    def tokens(self, logits: Tensor | None, rows: Rows, sampled_tokens: Tensor | None = None) -> Tensor:
        """Return the tokens [R] of the rows: those given, or sampled from logits [R, V]."""
        if sampled_tokens is None:
            assert logits is not None
            return sampled(self._sampler, logits, rows)
        return sampled_tokens

    def _policy(self, rows: Rows, row: int) -> Verification:
        return self._policies.get(rows.host_slots[row], MATCH)

    def _verify(
        self,
        kind: Verification,
        logits: Tensor,
        rows: Rows,
        proposal: Proposal | None,
        tokens: Tensor | None,
    ) -> _Result:
        if kind.policy == "rejection":
            return rejection(logits, rows, self._sampler, proposal, tokens)
        also = None
        if kind.policy == "lossy-typical":
            also = is_typical(logits, rows.drafted())
        if kind.policy == "lossy-threshold":
            also = above_threshold(logits, rows.drafted(), kind.threshold)
        return verify(self.tokens(logits, rows, tokens), rows, also=also)
