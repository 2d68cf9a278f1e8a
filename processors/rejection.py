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

from processors.kernels.softmax import softmax_parts, token_probability
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, draw_by_weight
from processors.upload import upload
from processors.verify import Spans

__all__ = ["Proposal", "rejection"]

_LARGE = 1 << 20  # logits of one row a request from which on a CPU saves time by looking at fewer rows


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

    def chances(self, drafted: Tensor, place: Tensor) -> Tensor:
        """The probabilities [N] of drafts [N] that were drawn from the rows `place` [N]; 1 for place -1."""
        if self.probabilities is None:
            return token_probability(self.logits, drafted, place)
        return torch.where(place < 0, 1, self.probabilities[place])


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
    case = _Case.of(logits, rows, proposal)
    is_large = not logits.is_cuda and len(spans.starts) * logits.shape[1] > _LARGE
    accepted, is_replaced = (_in_turn if is_large else _at_once)(case, spans)
    return spans.finish(accepted, _final(case, sampler, spans.starts + accepted, is_replaced))


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """What decides on the drafts of a step: the noise of acceptance u [R], and which of its rows the proposal
    has for each draft, place [R]: -1 where the draft was certain, or there is none."""

    logits: Tensor
    rows: Rows
    proposal: Proposal | None
    drafted: Tensor
    place: Tensor
    u: Tensor

    @classmethod
    def of(cls, logits: Tensor, rows: Rows, proposal: Proposal | None) -> _Case:
        """Gather it; a proposal without rows is none."""
        has_rows = proposal is not None and len(proposal.logits) > 0
        place = upload(_source(rows, proposal), logits.device)
        u = uniform(row_keys(rows.seeds, rows.positions, Stream.ACCEPT), torch.zeros_like(rows.seeds))
        return cls(logits, rows, proposal if has_rows else None, rows.drafted(), place, u)

    def judge(self, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Whether the drafts at the rows `at` [N] stand, and whether another token may take their place."""
        drafted, place, u = (x if at is None else x[at] for x in (self.drafted, self.place, self.u))
        p = token_probability(self.logits, drafted, at)
        q = 1 if self.proposal is None else self.proposal.chances(drafted, place)
        return u * q < p, p < 1  # a p that is no number is neither


def _at_once(case: _Case, spans: Spans) -> tuple[Tensor, Tensor]:
    """How many drafts of each request stand [Q], and whether the next is replaced [Q]."""
    stands, may_differ = case.judge()
    accepted = spans.accepted(spans.spread(stands)[:, :-1])
    return accepted, (accepted < spans.num_drafts) & may_differ[spans.starts + accepted]


def _in_turn(case: _Case, spans: Spans) -> tuple[Tensor, Tensor]:
    """As _at_once, draft after draft: what stands behind a refused one is not looked at."""
    accepted, is_replaced = torch.zeros_like(spans.starts), torch.zeros_like(spans.starts, dtype=torch.bool)
    for turn in range(spans.drafts.shape[1]):
        going = ((accepted == turn) & (spans.num_drafts > turn)).nonzero().squeeze(1)
        if not len(going):
            break
        stands, may_differ = case.judge(spans.starts[going] + turn)
        accepted[going] += stands
        is_replaced[going] = ~stands & may_differ
    return accepted, is_replaced


def _source(rows: Rows, proposal: Proposal | None) -> list[int]:
    """For each row the proposal's row of its draft; -1 where the draft was certain, or there is none."""
    if proposal is None:
        return [-1] * len(rows)
    drawn, numbers = iter(proposal.drawn), count()
    found: list[int] = []
    for size in rows.counts:
        found += [next(numbers) if next(drawn) else -1 for _ in range(size - 1)] + [-1]
    return found


def _final(case: _Case, sampler: Sampler, at: Tensor, is_replaced: Tensor) -> Tensor:
    """The token [Q] after the accepted drafts, chosen at the rows `at`."""
    logits, rows = case.logits, case.rows
    ends = replace(rows.select(rows.lasts), seeds=rows.seeds[at], positions=rows.positions[at])
    if logits.is_cuda:  # to know which there are would mean to wait for the device
        return torch.where(is_replaced, _replacement(case, at), sampler(logits[at], ends))
    tokens = torch.empty_like(at)
    if (some := at[is_replaced]).numel():
        tokens[is_replaced] = _replacement(case, some)
    if (others := (~is_replaced).nonzero().squeeze(1)).numel():
        tokens[others] = sampler(logits[at[others]], ends.select(others.tolist()))
    return tokens


def _replacement(case: _Case, at: Tensor) -> Tensor:
    """A draw from max(0, p - q) at each of the rows `at`, or from p where nothing is left."""
    if case.proposal is None:
        return torch.cat([_replaced(case, at[part], p) for part, p in softmax_parts(case.logits, at)])
    pairs = zip(
        softmax_parts(case.logits, at), softmax_parts(case.proposal.logits, case.place[at]), strict=True
    )
    return torch.cat([_replaced(case, at[part], p, q) for (part, p), (_, q) in pairs])


def _replaced(case: _Case, at: Tensor, rest: Tensor, q: Tensor | None = None) -> Tensor:
    """As _replacement, for `rest`, which is p there and overwritten, and q."""
    draft, place = case.drafted[at, None], case.place[at, None]
    if q is not None:
        rest -= q.mul_(place >= 0)
    # What was certain takes all that p has there.
    rest.scatter_(1, draft, torch.where(place >= 0, rest.gather(1, draft), 0)).clamp_(min=0)
    is_empty = rest.amax(dim=-1, keepdim=True) <= 0
    if rest.is_cuda or bool(is_empty.any()):
        rest = torch.where(is_empty, case.logits[at].softmax(dim=-1), rest)
    positions = case.rows.positions[at]
    return draw_by_weight(rest, row_keys(case.rows.seeds[at], positions, Stream.RESIDUAL), positions)
