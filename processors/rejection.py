"""Rejection sampling of drafts: the tokens follow the target's distribution, whatever the draft's was.

A draft x that was drawn from q stands with probability min(1, p(x) / q(x)); the first that does not is
replaced by a draw from max(0, p - q), normalised; if all stand, one more token is drawn from p (Leviathan,
Kalman, Matias 2023; Chen et al. 2023). p and q are what the chains made of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from processors.kernels.softmax import CACHED, token_probability
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, draw_by_weight
from processors.upload import upload
from processors.verify import Spans

__all__ = ["Proposal", "rejection"]


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What the drafts of a step were drawn from.

    `drawn` says of each draft, request by request in order, whether it was drawn; one that was not was
    certain, as what repeats the prompt is. logits [M, V] float32 has a row for each that was drawn, in the
    same order, as the draft's chain left it; probabilities [M] float32 are those of the drafts in it, if
    drawing has found them already.
    """

    logits: Tensor
    drawn: tuple[bool, ...]
    probabilities: Tensor | None = None

    def chances(self, drafted: Tensor) -> Tensor:
        """The probabilities [M] of the drawn drafts [M]."""
        return token_probability(self.logits, drafted) if self.probabilities is None else self.probabilities


def rejection(
    logits: Tensor, rows: Rows, sampler: Sampler, proposal: Proposal | None = None
) -> tuple[Tensor, Tensor]:
    """Tokens [Q, K + 1] and how many of them stand [Q], as from `verify`.

    logits [R, V] float32 are the target's, processed. Without a proposal every draft was certain. The noise
    of acceptance and of the replacement is the request's own, by position, in streams of their own; the
    token after accepted drafts has the noise it would have without drafts.
    """
    spans = Spans.of(rows)
    if not spans.drafts.shape[1]:
        return spans.finish(torch.zeros_like(spans.starts), sampler(logits, rows))
    drafted = rows.drafted()
    source = _source(rows, proposal)
    p, q = token_probability(logits, drafted), torch.ones_like(drafted, dtype=torch.float32)
    if proposal is not None and len(proposal.logits):
        mine = upload([row for row, place in enumerate(source) if place >= 0], drafted.device)
        q[mine] = proposal.chances(drafted[mine])
    u = uniform(row_keys(rows.seeds, rows.positions, Stream.ACCEPT), torch.zeros_like(rows.seeds))
    accepted = spans.accepted(spans.spread(u * q < p)[:, :-1])
    at = spans.starts + accepted
    is_replaced = (accepted < spans.num_drafts) & (p[at] < 1)  # not where p is no number
    return spans.finish(accepted, _final(logits, rows, sampler, at, is_replaced, proposal, source))


def _source(rows: Rows, proposal: Proposal | None) -> list[int]:
    """For each row the proposal's row of its draft; -1 where the draft was certain, or there is none."""
    if proposal is None:
        return [-1] * len(rows)
    drawn, numbers = iter(proposal.drawn), count()
    found: list[int] = []
    for size in rows.counts:
        found += [next(numbers) if next(drawn) else -1 for _ in range(size - 1)] + [-1]
    return found


def _final(
    logits: Tensor,
    rows: Rows,
    sampler: Sampler,
    at: Tensor,
    is_replaced: Tensor,
    proposal: Proposal | None,
    source: list[int],
) -> Tensor:
    """The token [Q] after the accepted drafts, chosen at the rows `at`."""
    place = upload(source, at.device)
    ends = replace(rows.select(rows.lasts), seeds=rows.seeds[at], positions=rows.positions[at])
    if logits.is_cuda:  # to know which there are would mean to wait for the device
        replaced = _replacement(logits, rows, at, place, proposal)
        return torch.where(is_replaced, replaced, sampler(logits[at], ends))
    tokens = torch.empty_like(at)
    if (some := at[is_replaced]).numel():
        tokens[is_replaced] = _replacement(logits, rows, some, place, proposal)
    if (others := (~is_replaced).nonzero().squeeze(1)).numel():
        tokens[others] = sampler(logits[at[others]], ends.select(others.tolist()))
    return tokens


def _replacement(logits: Tensor, rows: Rows, at: Tensor, place: Tensor, proposal: Proposal | None) -> Tensor:
    """A draw from max(0, p - q) at each of the rows `at`, or from p where nothing is left."""
    together = len(at) if logits.is_cuda else max(1, CACHED // 4 // logits.shape[1])
    return torch.cat([_replaced(logits, rows, some, place, proposal) for some in torch.split(at, together)])


def _replaced(logits: Tensor, rows: Rows, at: Tensor, place: Tensor, proposal: Proposal | None) -> Tensor:
    """As _replacement, for as many rows as a CPU's cache takes with all that is made of them."""
    rest, draft, place = logits[at].softmax(dim=-1), rows.drafted()[at, None], place[at, None]
    if proposal is not None and len(proposal.logits):
        q = proposal.logits[place.squeeze(1).clamp(min=0)].softmax(dim=-1)
        rest -= q.mul_(place >= 0)
    # What was certain takes all that p has there.
    rest.scatter_(1, draft, torch.where(place >= 0, rest.gather(1, draft), 0)).clamp_(min=0)
    is_empty = rest.amax(dim=-1, keepdim=True) <= 0
    if logits.is_cuda or bool(is_empty.any()):
        rest = torch.where(is_empty, logits[at].softmax(dim=-1), rest)
    keys = row_keys(rows.seeds[at], rows.positions[at], Stream.RESIDUAL)
    return draw_by_weight(rest, keys, rows.positions[at])
