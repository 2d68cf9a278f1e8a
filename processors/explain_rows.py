"""`explain_rows`: rerun the chains of rows, and leave out each stage in turn, with the same noise; the
runner-up of a draw, measures of a row of logits, distances of distributions, and `KeptLogits`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from processors.catalog import Draw, Phase
from processors.chain import Chain
from processors.kernels.operations import best_values
from processors.pipeline import Pipeline
from processors.rng import Stream, gumbel, row_keys
from processors.row_view import Changed, Forgone, Mask, Place, Race, RowView, StageView, Weighed
from processors.rows import Rows
from processors.sampler import BLOCK, PLAIN_LIMIT, Sampler, block_sums, find_block, invert

_IDLE = {
    Phase.CONSTRAIN: "masks no token here",
    Phase.ADJUST: "changes no token here",
    Phase.SCALE: "these values change nothing",
    Phase.TRUNCATE: "nothing below the threshold",
    Phase.GATE: "nothing to exclude",
}


def explain_rows(
    pipeline: Pipeline,
    sampler: Sampler,
    logits: Tensor,
    rows: Rows,
    tokens: Tensor,
    draws: Sequence[Draw],
    *,
    count: int = 5,
) -> list[RowView]:
    """Explain tokens [A] of rows, drawn or not, with the model's logits [A, V] after guidance.

    The rows have to be prepared by the pipeline, and their tokens not yet committed. `draws`: draw method of
    each row. `count`: number of ids in lists. With n stages that change the logits it costs at most n (n - 1)
    / 2 more stages and n draws.
    """
    done = Rerun(pipeline, sampler, logits, rows)
    walks = [_Walk(done.logits[0][at], token, count) for at, token in enumerate(tokens.tolist())]
    for number in range(len(done.calls)):
        _step(pipeline, done, rows, number, walks)
    races = [walk.race(draws[at], rows, at) for at, walk in enumerate(walks)]
    # A draft accepted by a lossy policy, or a token that the caller asks about, may differ from the draw's.
    drawn = [walk.place.p > 0 and (races[at].margin or 0) >= 0 for at, walk in enumerate(walks)]
    if all(drawn):
        done.tokens = tokens.tolist()
    else:
        done.draw()
    deciding, winning = _without_each(done, rows, walks)
    phases = [pipeline.registry.phase(call.stage) for call in done.calls]
    others = done.without(*[number for number, phase in enumerate(phases) if phase >= Phase.TRUNCATE])
    done.restore()
    return [
        RowView(
            token=walk.token,
            raw=walk.raw,
            stages=_with_left_out(pipeline, rows, at, walk),
            final=walk.place,
            surprise=-math.log2(walk.raw.p) if walk.raw.p > 0 else math.inf,
            race=races[at],
            decided_by=tuple(name for name, _ in deciding[at]) if drawn[at] else (),
            instead=tuple(other for _, other in deciding[at]) if drawn[at] else (),
            wins_without=tuple(winning[at]),
            mask=_mask(walk.stages, pipeline),
            forgone=_forgone(done, at, walk, others[at]) if drawn[at] else None,
        )
        for at, walk in enumerate(walks)
    ]


class _Walk:
    """One row on its way through the chain: views of the stages so far, and the row after them."""

    def __init__(self, logits: Tensor, token: int, count: int) -> None:
        self.token, self._count = token, count
        self.first = self.row = Snapshot(logits)
        self.raw = self.place = self.row.place(token, count)
        self.stages: list[StageView] = []

    def step(self, logits: Tensor, name: str, params: str, phase: Phase) -> StageView:
        """Add a stage and the logits [V] after it; return its view."""
        before, old = self.row, self.place
        after = Snapshot(logits, before)
        if after.is_same(before):
            view = StageView(name, params, False, (old.alive, old.alive), 1.0, old)
        else:
            removed, kept = cut(before, after, self._count)
            moved = changed(before, after, self._count) if phase == Phase.ADJUST else ()
            self.row, self.place = after, after.place(self.token, self._count)
            alive = old.alive, self.place.alive
            view = StageView(name, params, True, alive, kept, self.place, removed, moved)
        self.stages.append(view)
        return view

    def race(self, draw: Draw, rows: Rows, at: int) -> Race:
        return race(draw, self.row, self.token, rows.seeds[at : at + 1], rows.positions[at : at + 1])


def _step(pipeline: Pipeline, done: Rerun, rows: Rows, number: int, walks: Sequence[_Walk]) -> None:
    """Add the view of a stage to each row where it is on."""
    call, at = done.calls[number], done.calls[number].rows(len(rows))
    phase = pipeline.registry.phase(call.stage)
    olds, views = [walks[row].place for row in at], list[StageView]()
    for row in at:
        params = str(Chain(((call.stage, pipeline.values(rows.host_slots[row], call)),)))
        views.append(walks[row].step(done.logits[number + 1][row], call.stage, params, phase))
    stage, some = pipeline.stage(*call.key), rows.select(at)
    asked = [next((entry[0] for entry in view.changed or view.removed), -1) for view in views]
    notes = stage.notes(some, asked) or [""] * len(at)
    idle = () if all(view.acted for view in views) else stage.idle(some)
    for i, (row, old, view) in enumerate(zip(at, olds, views, strict=True)):
        note, why_not = notes[i], ""
        if not view.acted:
            why_not = (idle[i] if idle else "") or ("one token is left" if old.alive == 1 else _IDLE[phase])
        elif not note and phase == Phase.SCALE:
            note = f"entropy {old.entropy:.2f} -> {view.after.entropy:.2f} nats"
        elif not note and phase == Phase.CONSTRAIN and view.after.alive < old.alive:
            note = f"masked {old.alive - view.after.alive}, {view.after.alive} left"
        walks[row].stages[-1] = replace(view, note=note, why_not=why_not)


def _with_left_out(pipeline: Pipeline, rows: Rows, at: int, walk: _Walk) -> tuple[StageView, ...]:
    """Return the stages of a row, including those switched off by a condition."""
    views = list(walk.stages)
    left_out = pipeline.left_out(rows.host_slots[at], rows.host_drafts[at])
    for inserted, (count, (name, params), reason) in enumerate(left_out):
        here = walk.stages[count - 1].after if count else walk.raw
        text, alive = str(Chain(((name, params),))), (here.alive, here.alive)
        views.insert(count + inserted, StageView(name, text, False, alive, 1.0, here, why_not=reason))
    return tuple(views)


def _mask(stages: Sequence[StageView], pipeline: Pipeline) -> Mask:
    """Return which stages of the phase CONSTRAIN masked ids, and how many ids they masked together."""
    counts = {
        view.name: view.alive[0] - view.alive[1]
        for view in stages
        if view.acted and pipeline.registry.phase(view.name) == Phase.CONSTRAIN
    }
    return Mask(tuple(name for name, count in counts.items() if count), sum(counts.values()))


def _without_each(
    done: Rerun, rows: Rows, walks: Sequence[_Walk]
) -> tuple[list[list[tuple[str, int | None]]], list[list[str]]]:
    """Return for each row the stages without which its draw gives another token, and that token."""
    deciding = [list[tuple[str, int | None]]() for _ in range(len(rows))]
    winning = [list[str]() for _ in range(len(rows))]
    for number, call in enumerate(done.calls):
        others = done.without(number)
        for row in call.rows(len(rows)):
            if (other := others[row]) != done.tokens[row]:
                deciding[row].append((call.stage, other if other >= 0 else None))
                if other == walks[row].token:
                    winning[row].append(call.stage)
    return deciding, winning


def _forgone(done: Rerun, at: int, walk: _Walk, other: int) -> Forgone | None:
    if other == walk.token or other < 0:
        return None
    for number, call in enumerate(done.calls):
        if done.logits[number + 1][at, other] == -math.inf:
            return Forgone(other, walk.first.p(float(walk.first.logits[other])), call.stage)
    return None


def race(kind: Draw, row: Snapshot, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of one row of processed logits; seed and position are [1].

    The margin is negative if the draw gives another id than `token`, and None for a masked token.
    """
    if row.alive < 2 or row.logits[token] == -torch.inf:
        return Race(kind, None, None)
    if kind == "greedy":
        at, values = best(row.values, 2)
        ids = (at if row.ids is None else row.ids[at]).tolist()
        rank = 1 if ids[0] == token else 0
        return Race("greedy", float(row.logits[token] - values[rank]), ids[rank])
    if kind == "multinomial":
        return _of_interval(row.logits, token, seed, position)
    if row.alive <= PLAIN_LIMIT or len(row.logits) <= PLAIN_LIMIT:
        return _beaten(_noisy(row.logits[row.left], row.left, seed, position, Stream.TOKEN), row.left, token)
    return _of_blocks(row.logits, token, seed, position)


def _noisy(values: Tensor, ids: Tensor, seed: Tensor, position: Tensor, stream: Stream) -> Tensor:
    return values + gumbel(row_keys(seed, position, stream), ids)


def _beaten(scores: Tensor, ids: Tensor, token: int) -> Race:
    """Return the race by scores [N] of ids [N]; the margin is None if no other id has a score."""
    score = scores[ids == token]
    others = torch.where(ids == token, -torch.inf, scores)
    rival = int(others.argmax())
    if others[rival] == -torch.inf:
        return Race("gumbel", None, None)
    return Race("gumbel", float(score - others[rival]), int(ids[rival]))


def _of_blocks(logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of the two-level draw: the closer one of the race of blocks and the race in the block.

    The runner-up is the best id of the second block, or the second id of the drawn block.
    """
    sums = block_sums(logits[None])[0]
    numbers = torch.arange(len(sums), device=logits.device)
    blocks = _beaten(_noisy(sums, numbers, seed, position, Stream.BLOCK), numbers, token // BLOCK)
    inside = _beaten(*_scores(logits, token // BLOCK, seed, position), token)
    if blocks.margin is None or (inside.margin is not None and inside.margin <= blocks.margin):
        return inside
    assert blocks.runner_up is not None
    scores, ids = _scores(logits, blocks.runner_up, seed, position)
    return Race("gumbel", blocks.margin, int(ids[scores.argmax()]))


def _scores(logits: Tensor, block: int, seed: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    ids = torch.arange(block * BLOCK, min(block * BLOCK + BLOCK, len(logits)), device=logits.device)
    return _noisy(logits[ids].double(), ids, seed, position, Stream.TOKEN), ids


def _of_interval(logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of the draw by inverse CDF: distance of the uniform number from its interval's ends.

    The runner-up is the id beyond the nearer end of the token's interval. The ends 0 and 1 of the whole row
    are not considered.
    """
    block = find_block(logits[None], seed, position)
    choice = int(invert(block.inside, block.within)[0])
    if (drawn := int(block.ids[0, choice])) != token:
        return Race("multinomial", -1.0, drawn)
    sums, within = block.inside[0].cumsum(0), float(block.within)
    sums = torch.nn.functional.pad(sums / sums[-1], (1, 0))
    share = float(block.blocks[0, token // BLOCK] / block.blocks.sum())
    ends = [
        (within - float(sums[choice]), _neighbour(logits, block.blocks[0], token, -1)),
        (float(sums[choice + 1]) - within, _neighbour(logits, block.blocks[0], token, 1)),
    ]
    distances = [(max(0.0, distance * share), other) for distance, other in ends if other is not None]
    return Race("multinomial", *min(distances, default=(None, None)))


def _neighbour(logits: Tensor, blocks: Tensor, token: int, step: int) -> int | None:
    """Return the nearest higher (`step` 1) or lower (-1) id with a positive weight; None if there is none."""
    block, end = token // BLOCK, 0 if step > 0 else -1
    ids = _drawable(logits, block)
    if len(ids := ids[step * ids > step * token]):
        return int(ids[end])
    others = blocks.nonzero()[:, 0]
    if len(others := others[step * others > step * block]):
        return int(_drawable(logits, int(others[end]))[end])
    return None


def _drawable(logits: Tensor, block: int) -> Tensor:
    # A weight is relative to the block's largest, and may underflow to 0.
    part = logits[block * BLOCK : block * BLOCK + BLOCK].double()
    return block * BLOCK + (part - part.amax()).exp().nonzero().squeeze(1)


class Rerun:
    """The calls of the rows' program, and the logits [A, V] before each call and after the last.

    Draws use the noise of the step, so a row without some stage gets the token that a chain without the stage
    gives. `tokens`: the tokens of the draw; if they are known, set them before the first call of `without`.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, logits: Tensor, rows: Rows) -> None:
        self.calls, self.logits = pipeline.program(rows).calls, [logits.float()]
        self._pipeline, self._sampler, self._rows = pipeline, sampler, rows
        self.tokens: list[int] = []
        self._tokens_without: dict[tuple[int, ...], list[int]] = {}
        pipeline.run(self.calls, logits, rows, lambda _, after: self.logits.append(after.clone()))

    def draw(self) -> None:
        """Draw the tokens again, from the last logits."""
        self.tokens = self._sampler(self.logits[-1], self._rows).tolist()

    def without(self, *numbers: int) -> list[int]:
        """Return the token of each row if the calls with these numbers are left out.

        Once the logits equal the original ones, the rest of the chain and the draw are not repeated.
        """
        if not numbers:
            return self.tokens
        if numbers not in self._tokens_without:
            work = self.logits[min(numbers)]
            for number in range(min(numbers), len(self.calls)):
                if number not in numbers:
                    work = self._pipeline.run((self.calls[number],), work, self._rows)
                if number >= max(numbers) and torch.equal(work, self.logits[number + 1]):
                    self._tokens_without[numbers] = self.tokens
                    break
            else:
                self._tokens_without[numbers] = self._sampler(work, self._rows).tolist()
        return self._tokens_without[numbers]

    def restore(self) -> None:
        """Rerun the stages that remember their last `apply`, so that a commit refers to the step's logits."""
        for call, before in zip(self.calls, self.logits, strict=False):
            if self._pipeline.stage(*call.key).remembers:
                self._pipeline.run((call,), before, self._rows)


_FEW = 8  # a row with at most one unmasked id in 8 is measured on its unmasked ids alone
_LOG2_E = math.log2(math.e)
_DECIMALS = 4  # decimals to which changes of logits are compared
_LEAST = -1100.0  # 2 ** _LEAST underflows to 0 in float64


class Snapshot:
    """A row of logits [V] between two stages. `ids` [N]: the unmasked ids, None if they are many.

    `values`: logits of `ids`, or of all ids. `before`: the row before the stage; only its unmasked ids are
    examined, because a masked id stays masked.
    """

    def __init__(self, logits: Tensor, before: Snapshot | None = None) -> None:
        self.logits = logits
        self.ids: Tensor | None = None if before is None else before.ids
        self.values = logits if self.ids is None else logits[self.ids]
        # Two rows for intermediate results: allocating them takes longer than computing them.
        self._room: Tensor = (
            logits.new_empty(2, len(logits), dtype=torch.float64) if before is None else before._room
        )
        is_left = self.values > -torch.inf
        self.alive = int(torch.count_nonzero(is_left))
        if self.alive < len(self.values) and self.alive * _FEW <= len(logits):
            at = is_left.nonzero().squeeze(1)
            self.ids = at if self.ids is None else self.ids[at]
            self.values = self.values[at]

    def is_same(self, other: Snapshot) -> bool:
        """Whether all logits equal those of `other`, the row one stage before or after."""
        return self.alive == other.alive and torch.equal(self.values, other.values)

    @cached_property
    def left(self) -> Tensor:
        """The unmasked ids [N]."""
        return (self.values > -torch.inf).nonzero().squeeze(1) if self.ids is None else self.ids

    @cached_property
    def _peak(self) -> float:
        return max(float(self.values.amax()), torch.finfo(torch.float32).min) if self.alive else 0.0

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """Return the sum of the weights w, and the sum of w log2 w."""
        weights, logs = self._weights(), self._room[1, : len(self.values)]
        total = float(weights.sum()) or 1.0
        return total, float(logs.clamp_(min=_LEAST).mul_(weights).sum())

    def _weights(self) -> Tensor:
        """Return the probabilities of `values` relative to the largest one, valid until the next call."""
        weights, logs = self._room[:, : len(self.values)]
        logs.copy_(self.values).sub_(self._peak).mul_(_LOG2_E)
        return torch.exp2(logs, out=weights)

    @property
    def entropy(self) -> float:
        """Shannon entropy of the distribution, in nats."""
        total, spread = self._sums
        return max(0.0, math.log(total) - math.log(2) * spread / total)

    def mass(self, stays: Tensor) -> float:
        """Return the probability of the `values` with a set flag."""
        return min(1.0, float(self._weights().masked_fill_(~stays, 0).sum()) / self._sums[0])

    def p(self, logit: float) -> float:
        """Return the probability of an id with this logit."""
        return math.exp2((logit - self._peak) * _LOG2_E) / self._sums[0] if self.alive else 0.0

    def place(self, token: int, count: int) -> Place:
        """Return rank and probability of a token, and the `count` most likely ids."""
        top = self.weighed(*best(self.values, count))
        logit = float(self.logits[token])
        return Place(
            p=self.p(logit),
            rank=None if logit == -math.inf else self._rank(token, logit, top),
            logit=logit,
            entropy=self.entropy,
            alive=self.alive,
            top=top,
            others=max(0.0, 1 - math.fsum(p for _, p in top)),
        )

    def weighed(self, at: Tensor, values: Tensor) -> tuple[Weighed, ...]:
        """Return ids and probabilities for indices into `values`; without ids of probability 0."""
        ids = at if self.ids is None else self.ids[at]
        pairs = zip(ids.tolist(), map(self.p, values.tolist()), strict=True)
        return tuple((token, p) for token, p in pairs if p > 0)

    def _rank(self, token: int, logit: float, top: tuple[Weighed, ...]) -> int:
        """Return the rank of a token from 1: ids with a larger logit come first, ties by lowest id."""
        ranks = [rank for rank, (other, _) in enumerate(top, start=1) if other == token]
        if ranks:
            return ranks[0]
        before = int((self.ids < token).sum()) if self.ids is not None else token
        ties = torch.count_nonzero(self.values[:before] == logit)
        return int(torch.count_nonzero(self.values > logit) + ties) + 1


def best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return indices and values of the `count` largest values above -inf, ties by lowest index."""
    count = min(count, len(values))
    if not count:
        return torch.empty(0, dtype=torch.int64), values[:0]
    least = best_values(values[None], count)[0, -1].clamp(min=torch.finfo(torch.float32).min)
    at = (values >= least).nonzero().squeeze(1)
    order = values[at].sort(descending=True, stable=True)
    return at[order.indices[:count]], order.values[:count]


def cut(before: Snapshot, after: Snapshot, count: int) -> tuple[tuple[Weighed, ...], float]:
    """Return the most likely ids that the stage masked, and the mass of the ids that it kept.

    Both refer to the probabilities before the stage.
    """
    if before.alive == after.alive:
        return (), 1.0
    stays = (after.logits if before.ids is None else after.logits[before.ids]) > -torch.inf
    gone = before.values.masked_fill(stays, -torch.inf)
    return before.weighed(*best(gone, count)), before.mass(stays)


def changed(before: Snapshot, after: Snapshot, count: int) -> tuple[Changed, ...]:
    """Return the unmasked ids whose logits changed most, with both logits.

    Among equal changes (up to rounding) the more likely id comes first.
    """
    ids = (before.logits != after.logits).nonzero().squeeze(1)
    old, new = before.logits[ids], after.logits[ids]
    by = torch.where(new > -torch.inf, (new - old).abs().round(decimals=_DECIMALS), -torch.inf)
    likely = old.sort(descending=True, stable=True).indices
    order = likely[by[likely].sort(descending=True, stable=True).indices]
    at = order[by[order] > -torch.inf][:count]
    return tuple(zip(ids[at].tolist(), old[at].tolist(), new[at].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Divergence:
    """Distances of the distributions p and q.

    `tv`: the total variation 1/2 sum |p - q|, from 0 to 1. `kl_ab`: sum p log2(p / q) in bits, infinite if
    some id has p > 0 and q = 0; `kl_ba`: the same with p and q exchanged.
    """

    tv: float
    kl_ab: float
    kl_ba: float


def divergence(a: Tensor, b: Tensor) -> Divergence:
    """Return the distances of the softmaxes of two rows of logits [V], each with an unmasked id."""
    p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
    tv = float((p.exp() - q.exp()).abs().sum()) / 2
    return Divergence(min(tv, 1.0), _bits(p, q), _bits(q, p))


def _bits(p: Tensor, q: Tensor) -> float:
    """Return sum p log2(p / q) of log-probabilities [V]; rounding never makes it negative."""
    weights = p.exp()
    has = weights > 0
    return max(0.0, float((weights[has] * (p[has] - q[has])).sum()) / math.log(2))


@dataclass(frozen=True, slots=True, eq=False)
class KeptLogits:
    """The largest L of V logits: `ids` [L] int64 and `values` [L] float32.

    `rest` = log sum exp of the other V - L logits; -inf if all are masked or there is none. `seed`: seed of
    the row's draw.
    """

    ids: Tensor
    values: Tensor
    rest: float
    vocab_size: int
    seed: int

    @classmethod
    def of(cls, row: Tensor, count: int, seed: int) -> KeptLogits:
        """Keep the `count` largest of a row's logits [V], ties by lowest id."""
        size = len(row)
        if count >= size:
            return cls(torch.arange(size), row.to("cpu", torch.float32, copy=True), -math.inf, size, seed)
        values, ids = row.float().sort(descending=True, stable=True)
        left = float(values[count:].double().logsumexp(0))
        return cls(ids[:count].to("cpu", copy=True), values[:count].to("cpu", copy=True), left, size, seed)

    def rows(self) -> Tensor:
        """Return two rows of logits [2, V] with the kept values and the bin's probability on the other ids.

        Row 0 spreads the bin over all other ids, row 1 over as few as possible, as no id of the bin may
        exceed the smallest kept value. If both rows lead to the same token, the original row leads to it too.
        """
        rows = torch.full((2, self.vocab_size), -math.inf)
        others = torch.ones(self.vocab_size, dtype=torch.bool).index_fill_(0, self.ids, False).nonzero()[:, 0]
        if len(others) and self.rest > -math.inf:
            rows[0, others] = self.rest - math.log(len(others))
            least = float(self.values[-1])
            full = min(len(others) - 1, int(math.exp(min(self.rest - least, 60.0))))
            rows[1, others[:full]] = least
            left = math.exp(self.rest - least) - full
            rows[1, others[full]] = least + math.log(left) if left > 0 else -math.inf
        rows[:, self.ids] = self.values
        return rows
