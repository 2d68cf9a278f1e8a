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

from processors.kernels.softmax import softmax_parts, token_probability
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, draw_by_weight
from processors.upload import upload
from processors.verify import Spans

__all__ = ["Proposal", "rejection"]

_LARGE = 1 << 20  # logits, one row per request, from which a CPU saves time by verifying draft after draft


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

    def chances(self, drafted: Tensor, q_row: Tensor) -> Tensor:
        """Return q(x) [N] of drafts [N] sampled from the proposal rows `q_row` [N]; 1 for q_row -1."""
        if self.probabilities is None:
            return token_probability(self.logits, drafted, q_row)
        return torch.where(q_row < 0, 1, self.probabilities[q_row])


def rejection(
    logits: Tensor, rows: Rows, sampler: Sampler, proposal: Proposal | None = None
) -> tuple[Tensor, Tensor]:
    """Return tokens [Q, K + 1] and the number of valid ones [Q], like `verify`.

    logits [R, V] float32 are the target's, processed. Without a proposal every draft is certain. Acceptance
    and replacement have their own noise streams, keyed by the request's seed and the position. The token
    after accepted drafts uses the noise that it would have without drafts.
    """
    spans = Spans.of(rows)
    if not spans.drafts.shape[1]:
        return spans.finish(torch.zeros_like(spans.starts), sampler(logits, rows))
    step = _Step.of(logits, rows, proposal)
    is_large = not logits.is_cuda and len(spans.starts) * logits.shape[1] > _LARGE
    accepted, is_replaced = (_verify_in_turn if is_large else _verify_together)(step, spans)
    return spans.finish(accepted, _last_token(step, sampler, spans.starts + accepted, is_replaced))


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Inputs of verification: the acceptance noise u [R] and the proposal row of each draft, q_row [R].

    `q_row` is -1 where the draft is certain or the row has none.
    """

    logits: Tensor
    rows: Rows
    proposal: Proposal | None
    drafted: Tensor
    q_row: Tensor
    u: Tensor

    @classmethod
    def of(cls, logits: Tensor, rows: Rows, proposal: Proposal | None) -> _Step:
        """Build from a step; a proposal without rows counts as none."""
        has_rows = proposal is not None and len(proposal.logits) > 0
        q_row = upload(_proposal_rows(rows, proposal), logits.device)
        u = uniform(row_keys(rows.seeds, rows.positions, Stream.ACCEPT), torch.zeros_like(rows.seeds))
        return cls(logits, rows, proposal if has_rows else None, rows.drafted(), q_row, u)

    def verify(self, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return whether the drafts of rows `at` [N] are accepted, and whether a rejected one is replaced."""
        drafted, q_row, u = (x if at is None else x[at] for x in (self.drafted, self.q_row, self.u))
        p = token_probability(self.logits, drafted, at)
        q = 1 if self.proposal is None else self.proposal.chances(drafted, q_row)
        return u * q < p, p < 1  # both False for a NaN


def _verify_together(step: _Step, spans: Spans) -> tuple[Tensor, Tensor]:
    """Return the number of accepted drafts [Q], and whether the next one is replaced [Q]."""
    is_accepted, is_replaceable = step.verify()
    accepted = spans.accepted(spans.spread(is_accepted)[:, :-1])
    return accepted, (accepted < spans.num_drafts) & is_replaceable[spans.starts + accepted]


def _verify_in_turn(step: _Step, spans: Spans) -> tuple[Tensor, Tensor]:
    """As _verify_together, draft after draft; drafts after a rejected one are skipped."""
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


def _last_token(step: _Step, sampler: Sampler, at: Tensor, is_replaced: Tensor) -> Tensor:
    """Return the token [Q] after the accepted drafts, chosen at the rows `at`."""
    logits, rows = step.logits, step.rows
    ends = replace(rows.select(rows.lasts), seeds=rows.seeds[at], positions=rows.positions[at])
    if logits.is_cuda:  # both branches, as choosing between them would synchronise with the device
        return torch.where(is_replaced, _replacement(step, at), sampler(logits[at], ends))
    tokens = torch.empty_like(at)
    if (some := at[is_replaced]).numel():
        tokens[is_replaced] = _replacement(step, some)
    if (others := (~is_replaced).nonzero().squeeze(1)).numel():
        tokens[others] = sampler(logits[at[others]], ends.select(others.tolist()))
    return tokens


def _replacement(step: _Step, at: Tensor) -> Tensor:
    """Draw from max(0, p - q) at each of the rows `at`, or from p where that is all zero."""
    if step.proposal is None:
        return torch.cat([_replaced(step, at[part], p) for part, p in softmax_parts(step.logits, at)])
    pairs = zip(
        softmax_parts(step.logits, at), softmax_parts(step.proposal.logits, step.q_row[at]), strict=True
    )
    return torch.cat([_replaced(step, at[part], p, q) for (part, p), (_, q) in pairs])


def _replaced(step: _Step, at: Tensor, rest: Tensor, q: Tensor | None = None) -> Tensor:
    """As _replacement, given p at these rows as `rest`, which is overwritten, and q."""
    draft, q_row = step.drafted[at, None], step.q_row[at, None]
    if q is not None:
        rest -= q.mul_(q_row >= 0)
    # A certain draft has q(x) = 1, so nothing of p(x) is left.
    rest.scatter_(1, draft, torch.where(q_row >= 0, rest.gather(1, draft), 0)).clamp_(min=0)
    is_empty = rest.amax(dim=-1, keepdim=True) <= 0
    if rest.is_cuda or bool(is_empty.any()):
        rest = torch.where(is_empty, step.logits[at].softmax(dim=-1), rest)
    positions = step.rows.positions[at]
    return draw_by_weight(rest, row_keys(step.rows.seeds[at], positions, Stream.RESIDUAL), positions)
