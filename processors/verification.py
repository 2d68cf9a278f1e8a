"""Verification of draft tokens, each request by its own policy: a prefix of the drafts is accepted, then
one token is added. Rejection sampling keeps the target's distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count

import torch
from torch import Tensor

from processors.chooser import sampled
from processors.graphs import upload
from processors.kernels.operations import operation, row_sums, softmax_parts, token_probability
from processors.request_values import MATCH, Verification
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, draw_by_weight

_Result = tuple[Tensor, Tensor]


class Verifier:
    """Samples the tokens of a step and accepts drafts by the policy of each request."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._policies: dict[int, Verification] = {}

    def admit(self, slot: int, verification: Verification) -> None:
        """Set the policy of a slot. A greedy request needs one that is not `is_drawn`."""
        self._policies[slot] = verification

    def fork(self, source: int, target: int) -> None:
        """Give the target slot the policy of the source."""
        self._policies[target] = self._policies[source]

    def reads(self, rows: Rows) -> bool:
        """Whether the drafts of any request are verified by logits rather than by sampled tokens alone."""
        sizes = zip(rows.lasts, rows.counts, strict=True) if rows.drafts.shape[1] else ()
        return any(size > 1 and not self._policy(rows, last).is_exact for last, size in sizes)

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
            is_kind = upload([own_kind == kind for own_kind in kinds], logits.device)
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
        self, kind: Verification, logits: Tensor, rows: Rows, proposal: Proposal | None, tokens: Tensor | None
    ) -> _Result:
        if kind.policy == "rejection":
            return rejection(logits, rows, self._sampler, proposal, tokens)
        also = None
        if kind.policy == "lossy-typical":
            also = is_typical(logits, rows.drafted())
        if kind.policy == "lossy-threshold":
            also = above_threshold(logits, rows.drafted(), kind.threshold)
        return verify(self.tokens(logits, rows, tokens), rows, also=also)


TYPICAL_FLOOR, TYPICAL_FACTOR = 0.09, 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The rows of a step by request: first row starts [Q], num_drafts [Q], drafts [Q, K], all int64."""

    starts: Tensor
    num_drafts: Tensor
    drafts: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Spans:
        """Build from the rows of a step."""
        ends = accumulate(rows.counts)
        cells = [(end - count, count - 1) for end, count in zip(ends, rows.counts, strict=True)]
        starts, num_drafts = upload([*zip(*cells, strict=True)], rows.slots.device, torch.int64)
        return cls(starts, num_drafts, rows.drafts[starts])

    def spread(self, values: Tensor) -> Tensor:
        """Return values [R] as [Q, K + 1], padded with the value of each request's last row."""
        column = torch.arange(self.drafts.shape[1] + 1, device=values.device)
        return values[self.starts[:, None] + torch.minimum(column, self.num_drafts[:, None])]

    def accepted(self, is_accepted: Tensor) -> Tensor:
        """Return the number of drafts before the first rejected one [Q]; is_accepted [Q, K] bool."""
        column = torch.arange(is_accepted.shape[1], device=is_accepted.device)
        return (is_accepted & (column < self.num_drafts[:, None])).cumprod(dim=1).sum(dim=1)

    def finish(self, accepted: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens [Q, K + 1] and the number of valid ones [Q]: accepted drafts, then `final` [Q]."""
        tokens = torch.nn.functional.pad(self.drafts, (0, 1))
        return tokens.scatter(1, accepted[:, None], final[:, None]), accepted + 1


def verify(sampled: Tensor, rows: Rows, *, also: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Accept drafts while they equal the sampled tokens (policy `match`).

    sampled [R] has one token per row, for Q requests with K_i + 1 rows each. Return tokens [Q, K + 1] and
    counts [Q]: the first counts[i] tokens of request i are its accepted drafts and the token sampled after
    them. Without drafts (K = 0) that is the sampled token alone. `also` [R] bool: rows whose draft is
    accepted whatever token was sampled (a lossy policy).
    """
    if not rows.drafts.shape[1]:
        return sampled[:, None], torch.ones_like(sampled)
    spans = Spans.of(rows)
    tokens = spans.spread(sampled)
    is_accepted = tokens[:, :-1] == spans.drafts
    if also is not None:
        is_accepted |= spans.spread(also)[:, :-1]
    accepted = spans.accepted(is_accepted)
    return spans.finish(accepted, tokens.gather(1, accepted[:, None]).squeeze(1))


def matched(sampled: Sequence[int], rows: Rows) -> list[list[int]]:
    """Return the tokens that `verify` finds valid, by request, for sampled tokens [R] on the host."""
    tokens, start = [], 0
    for length in rows.counts:
        drawn, drafts = sampled[start : start + length], rows.host_drafts[start + length - 1]
        mismatches = (index for index, draft in enumerate(drafts) if drawn[index] != draft)
        tokens.append([*drawn[: next(mismatches, length - 1) + 1]])
        start += length
    return tokens


def above_threshold(logits: Tensor, drafted: Tensor, threshold: float) -> Tensor:
    """Return whether each draft [R] has at least this probability under the target's logits [R, V]."""
    return token_probability(logits, drafted) >= threshold


def is_typical(logits: Tensor, drafted: Tensor) -> Tensor:
    """Return whether each draft [R] is typical: p > min(floor, factor * exp(-H)), H the entropy in nats.

    Typical acceptance of Medusa (Cai et al. 2024).
    """
    logprobs = logits.log_softmax(dim=-1)
    entropy = row_sums(torch.special.entr(logprobs.exp())).squeeze(1)
    chosen = logprobs.gather(1, drafted[:, None]).squeeze(1).exp()
    level = (TYPICAL_FACTOR * (-entropy).exp()).clamp(max=TYPICAL_FLOOR)
    return torch.gt(chosen, level)


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
    at = spans.starts + accepted
    if tokens is not None:
        return spans.finish(accepted, torch.where(replacement < 0, tokens[at], replacement))
    ends = replace(rows.select(rows.lasts), seeds=rows.seeds[at], positions=rows.positions[at])
    if logits.is_cuda:  # for all rows, because indexing by a mask would synchronise with the device
        replacement = torch.where(replacement < 0, sampled(sampler, logits[at], ends), replacement)
    elif (others := (replacement < 0).nonzero().squeeze(1)).numel():
        replacement[others] = sampler(logits[at[others]], ends.select(others.tolist()))
    return spans.finish(accepted, replacement)


def _decided(logits: Tensor, rows: Rows, spans: Spans, proposal: Proposal | None) -> tuple[Tensor, Tensor]:
    """Return the result of rejection_torch for the rows of a step, by a kernel where one applies."""
    drawn, numbers = iter(proposal.drawn if proposal else ()), count()
    q_rows: list[int] = []  # the proposal row of each row's draft; -1 where it is certain or the row has none
    for size in rows.counts:
        q_rows += [next(numbers) if next(drawn, False) else -1 for _ in range(size - 1)] + [-1]
    source = chances = None
    if proposal is not None and len(proposal.logits):  # a proposal without rows counts as none
        source, chances = proposal.logits, proposal.probabilities
        if logits.is_cuda and chances is None:
            at = upload([row for row, q_row in enumerate(q_rows) if q_row >= 0], logits.device)
            chances = token_probability(source, rows.drafted()[at])
    decide = _on_gpu if logits.is_cuda else rejection_torch
    q_row = upload(q_rows, logits.device)
    of_rows = rows.seeds, rows.positions, spans.starts, spans.num_drafts, spans.drafts
    result: tuple[Tensor, Tensor] = decide(logits, *of_rows, q_row, source, chances)
    return result


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
    column = torch.arange(drafts.shape[1], device=logits.device)
    is_draft = column < num_drafts[:, None]
    drafted = torch.zeros_like(seeds)
    drafted[(starts[:, None] + column)[is_draft]] = drafts[is_draft]
    u = uniform(row_keys(seeds, positions, Stream.ACCEPT), torch.zeros_like(seeds))
    step = _Step(logits, seeds, positions, drafted, u, q_row, proposal, chances)
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

    def verify(self, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return whether the drafts of rows `at` [N] are accepted, and whether a rejected one is replaced."""
        drafted, q_row, u = (x if at is None else x[at] for x in (self.drafted, self.q_row, self.u))
        p = token_probability(self.logits, drafted, at)
        q: Tensor | int = 1  # of a certain draft
        if self.proposal is not None and self.chances is not None:
            q = torch.where(q_row < 0, 1, self.chances[q_row])
        elif self.proposal is not None:
            q = token_probability(self.proposal, drafted, q_row)
        return u * q < p, p < 1  # both False for a NaN


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


def _replacement(step: _Step, at: Tensor) -> Tensor:
    """Draw from max(0, p - q) at each of the rows `at`, or from p where that is all zero."""
    if step.proposal is None:
        return torch.cat([_replaced(step, at[part], p) for part, p in softmax_parts(step.logits, at)])
    pairs = zip(softmax_parts(step.logits, at), softmax_parts(step.proposal, step.q_row[at]), strict=True)
    return torch.cat([_replaced(step, at[part], p, q) for (part, p), (_, q) in pairs])


def _replaced(step: _Step, at: Tensor, weights: Tensor, q: Tensor | None = None) -> Tensor:
    """As _replacement, given p of these rows as `weights`, which is overwritten, and q."""
    draft, q_row = step.drafted[at, None], step.q_row[at, None]
    if q is not None:
        weights -= q.mul_(q_row >= 0)
    # A certain draft has q(x) = 1 >= p(x), so max(0, p - q) is 0 at x.
    weights.scatter_(1, draft, torch.where(q_row >= 0, weights.gather(1, draft), 0)).clamp_(min=0)
    is_empty = weights.amax(dim=-1, keepdim=True) <= 0
    if bool(is_empty.any()):
        weights = torch.where(is_empty, step.logits[at].softmax(dim=-1), weights)
    positions = step.positions[at]
    return draw_by_weight(weights, row_keys(step.seeds[at], positions, Stream.RESIDUAL), positions)
