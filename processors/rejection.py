"""Speculative sampling: rejection sampling of draft tokens that keeps the target's distribution.

A draft token x drawn from q is accepted with probability min(1, p(x) / q(x)). The first rejected one is
replaced by a draw from max(0, p - q), normalised; if all are accepted, one more token is drawn from p
(Leviathan, Kalman, Matias 2023; Chen et al. 2023). p and q are softmaxes of processed logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from processors.draw_on_device import sampled
from processors.kernels.operation import operation
from processors.kernels.softmax import softmax_parts, token_probability
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, draw_by_weight
from processors.upload import upload
from processors.verify import Spans

__all__ = ["Proposal", "rejection", "rejection_torch"]

_LARGE = 1 << 20  # logits of one row a request, from which a CPU saves time by verifying draft by draft


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The distributions q that the drafts of a step were drawn from.

    `drawn` has a flag for each draft, in the order of the requests: sampled from q, or certain (q(x) = 1, as
    for an n-gram draft). logits [M, V] float32 has a row of processed logits for each sampled draft, in the
    same order. probabilities [M] float32 are q(x) of those drafts, if already computed.
    """

    logits: Tensor
    drawn: tuple[bool, ...]
    probabilities: Tensor | None = None


def rejection(
    logits: Tensor,
    rows: Rows,
    sampler: Sampler,
    proposal: Proposal | None = None,
    tokens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and the number of valid ones [Q], like `verify`.

    logits [R, V] float32 are the target's, processed. Without a proposal every draft is certain. Acceptance
    and replacement have their own noise streams, keyed by the request's seed and the position. The token
    after accepted drafts uses the noise that it would have without drafts. `tokens` [R] are those of the
    rows, if already sampled.
    """
    spans = Spans.of(rows)
    if not spans.drafts.shape[1]:
        tokens = sampled(sampler, logits, rows) if tokens is None else tokens
        return spans.finish(torch.zeros_like(spans.starts), tokens)
    accepted, replacement = _decided(logits, rows, spans, proposal)
    if tokens is not None:
        at = spans.starts + accepted
        return spans.finish(accepted, torch.where(replacement < 0, tokens[at], replacement))
    return spans.finish(accepted, _last_token(logits, rows, sampler, spans.starts + accepted, replacement))


def _decided(logits: Tensor, rows: Rows, spans: Spans, proposal: Proposal | None) -> tuple[Tensor, Tensor]:
    """Return the result of rejection_torch for the rows of a step, by a kernel where one applies."""
    q_rows = _proposal_rows(rows, proposal)
    source = chances = None
    if proposal is not None and len(proposal.logits):  # a proposal without rows counts as none
        source, chances = proposal.logits, proposal.probabilities
        if logits.is_cuda and chances is None:
            at = upload([row for row, q_row in enumerate(q_rows) if q_row >= 0], logits.device)
            chances = token_probability(source, rows.drafted()[at])
    decide = _on_gpu if logits.is_cuda else rejection_torch
    q_row = upload(q_rows, logits.device)
    found: tuple[Tensor, Tensor] = decide(
        logits,
        rows.seeds,
        rows.positions,
        spans.starts,
        spans.num_drafts,
        spans.drafts,
        q_row,
        source,
        chances,
    )
    return found


def rejection_torch(
    logits: Tensor,
    seeds: Tensor,
    positions: Tensor,
    starts: Tensor,
    num_drafts: Tensor,
    drafts: Tensor,
    q_row: Tensor,
    proposal: Tensor | None = None,
    chances: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the number of accepted drafts [Q], and the token [Q] that replaces the next one, or -1.

    logits [R, V] float32 with seeds and positions [R]; starts, num_drafts [Q] and drafts [Q, K] as in Spans.
    q_row [R] is the row of `proposal` [M, V] of each row's draft, -1 where it is certain or the row has none;
    chances [M] are q(x) of these drafts, or None. The token is -1 after all drafts, and in a broken row:
    there the sampler chooses.
    """
    spans = Spans(starts, num_drafts, drafts)
    step = _Step.of(logits, seeds, positions, spans, q_row, proposal, chances)
    is_large = len(starts) * logits.shape[1] > _LARGE
    accepted, is_replaced = (_verify_in_turn if is_large else _verify_together)(step, spans)
    replacement = torch.full_like(accepted, -1)
    if (at := (starts + accepted)[is_replaced]).numel():
        replacement[is_replaced] = _replacement(step, at)
    return accepted, replacement


_on_gpu = operation(
    "rejection(Tensor logits, Tensor seeds, Tensor positions, Tensor starts, Tensor num_drafts, "
    "Tensor drafts, Tensor q_row, Tensor? proposal, Tensor? chances) -> (Tensor, Tensor)",
    rejection_torch,
    "processors.kernels.rejection_triton:rejection_triton",
)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Inputs of verification by row [R]: logits, draft, acceptance noise u; others as in rejection_torch."""

    logits: Tensor
    seeds: Tensor
    positions: Tensor
    drafted: Tensor
    u: Tensor
    q_row: Tensor
    proposal: Tensor | None
    chances: Tensor | None

    @classmethod
    def of(
        cls,
        logits: Tensor,
        seeds: Tensor,
        positions: Tensor,
        spans: Spans,
        q_row: Tensor,
        proposal: Tensor | None,
        chances: Tensor | None,
    ) -> _Step:
        """Build from the arguments of rejection_torch, drawing the acceptance noise."""
        column = torch.arange(spans.drafts.shape[1], device=logits.device)
        is_draft = column < spans.num_drafts[:, None]
        drafted = torch.zeros_like(seeds)
        drafted[(spans.starts[:, None] + column)[is_draft]] = spans.drafts[is_draft]
        u = uniform(row_keys(seeds, positions, Stream.ACCEPT), torch.zeros_like(seeds))
        return cls(logits, seeds, positions, drafted, u, q_row, proposal, chances)

    def verify(self, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return whether the drafts of rows `at` [N] are accepted, and whether a rejected one is replaced."""
        drafted, q_row, u = (x if at is None else x[at] for x in (self.drafted, self.q_row, self.u))
        p = token_probability(self.logits, drafted, at)
        return u * self._q(drafted, q_row) < p, p < 1  # both False for a NaN

    def _q(self, drafted: Tensor, q_row: Tensor) -> Tensor | int:
        """Return q(x) [N] of drafts [N] sampled from the proposal rows `q_row` [N]; 1 for q_row -1."""
        if self.proposal is None:
            return 1
        if self.chances is None:
            return token_probability(self.proposal, drafted, q_row)
        return torch.where(q_row < 0, 1, self.chances[q_row])


def _verify_together(step: _Step, spans: Spans) -> tuple[Tensor, Tensor]:
    """Return the number of accepted drafts [Q], and whether the next one is replaced [Q]."""
    is_accepted, is_replaceable = step.verify()
    accepted = spans.accepted(spans.spread(is_accepted)[:, :-1])
    return accepted, (accepted < spans.num_drafts) & is_replaceable[spans.starts + accepted]


def _verify_in_turn(step: _Step, spans: Spans) -> tuple[Tensor, Tensor]:
    """As _verify_together, draft by draft; drafts after a rejected one are skipped."""
    accepted, is_replaced = torch.zeros_like(spans.starts), torch.zeros_like(spans.starts, dtype=torch.bool)
    for turn in range(spans.drafts.shape[1]):
        going = ((accepted == turn) & (spans.num_drafts > turn)).nonzero().squeeze(1)
        if not len(going):
            break
        is_accepted, is_replaceable = step.verify(spans.starts[going] + turn)
        accepted[going] += is_accepted
        is_replaced[going] = ~is_accepted & is_replaceable
    return accepted, is_replaced


def _proposal_rows(rows: Rows, proposal: Proposal | None) -> list[int]:
    """Return the proposal row of each row's draft; -1 where the draft is certain or the row has none."""
    if proposal is None:
        return [-1] * len(rows)
    drawn, numbers = iter(proposal.drawn), count()
    found: list[int] = []
    for size in rows.counts:
        found += [next(numbers) if next(drawn) else -1 for _ in range(size - 1)] + [-1]
    return found


def _last_token(logits: Tensor, rows: Rows, sampler: Sampler, at: Tensor, replacement: Tensor) -> Tensor:
    """Return the token [Q] after the accepted drafts: the replacement, or the sampler's at the rows `at`."""
    ends = replace(rows.select(rows.lasts), seeds=rows.seeds[at], positions=rows.positions[at])
    if logits.is_cuda:  # for all rows, because indexing by a mask would synchronise with the device
        return torch.where(replacement < 0, sampled(sampler, logits[at], ends), replacement)
    if (others := (replacement < 0).nonzero().squeeze(1)).numel():
        replacement[others] = sampler(logits[at[others]], ends.select(others.tolist()))
    return replacement


def _replacement(step: _Step, at: Tensor) -> Tensor:
    """Draw from max(0, p - q) at each of the rows `at`, or from p where that is all zero."""
    if step.proposal is None:
        return torch.cat([_replaced(step, at[part], p) for part, p in softmax_parts(step.logits, at)])
    pairs = zip(softmax_parts(step.logits, at), softmax_parts(step.proposal, step.q_row[at]), strict=True)
    return torch.cat([_replaced(step, at[part], p, q) for (part, p), (_, q) in pairs])


def _replaced(step: _Step, at: Tensor, rest: Tensor, q: Tensor | None = None) -> Tensor:
    """As _replacement, given p of these rows as `rest`, which is overwritten, and q."""
    draft, q_row = step.drafted[at, None], step.q_row[at, None]
    if q is not None:
        rest -= q.mul_(q_row >= 0)
    # A certain draft has q(x) = 1 >= p(x), so max(0, p - q) is 0 at x.
    rest.scatter_(1, draft, torch.where(q_row >= 0, rest.gather(1, draft), 0)).clamp_(min=0)
    is_empty = rest.amax(dim=-1, keepdim=True) <= 0
    if bool(is_empty.any()):
        rest = torch.where(is_empty, step.logits[at].softmax(dim=-1), rest)
    positions = step.positions[at]
    return draw_by_weight(rest, row_keys(step.seeds[at], positions, Stream.RESIDUAL), positions)
