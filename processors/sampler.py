"""The choice of tokens: `Sampler` draws one token per row from processed logits (greedy, Gumbel-max or
inverse CDF), `Chooser` takes the fused end of a chain where it applies, and formulas combine
distributions (guidance, contrastive search).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from processors.base import Noise
from processors.catalog import Draw
from processors.chain import Key
from processors.graphs import Graphs, upload
from processors.kernels.operations import few_finite, row_cumsums, row_sums, softmax_parts
from processors.pipeline import Pipeline, Seen, StageCall
from processors.registry import Registry
from processors.rng import Stream, few_gumbel, gumbel, row_keys, uniform
from processors.rows import Rows

if TYPE_CHECKING:
    from processors.choose_on_device import DeviceChoice
    from processors.fused import Tail


PLAIN_LIMIT = 4096  # finite logits up to which each id draws its own noise
BLOCK = 512  # ids per block of the two-level draw

EMPTY = -1  # token of a row whose logits are all masked
NON_FINITE = -2  # token of a row with NaN or +inf among the logits


class Inverted(NamedTuple):
    """Result of the search by inverse CDF: block weights [R, B], the chosen block [R, 1], its ids [R, N].

    `inside` [R, N]: weights of these ids. `rest` [R, 1]: position of the uniform number within the block, 0
    to 1.
    """

    blocks: Tensor
    block: Tensor
    rest: Tensor
    ids: Tensor
    inside: Tensor


class Sampler:
    """Chooses a token for each row by the draw method of its request."""

    def __init__(self) -> None:
        self._draws: dict[int, Draw] = {}
        self._last: tuple[tuple[int, ...], tuple[Draw, ...]] = ((), ())  # slots of the last step, their draws

    def admit(self, slot: int, draw: Draw) -> None:
        """Set the draw method of a slot."""
        self._draws[slot], self._last = draw, ((), ())

    def fork(self, source: int, target: int) -> None:
        """Give the target slot the draw method of the source."""
        self.admit(target, self._draws[source])

    def noise(self, slot: int, seed: int) -> Noise | None:
        """Return the noise function of the slot's draw; None unless it is Gumbel-max."""
        return partial(few_gumbel, seed, Stream.TOKEN) if self._draws[slot] == "gumbel" else None

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for logits [R, V] float32; EMPTY or NON_FINITE for a failed row."""
        draws = self.draws(rows)
        kinds = sorted(set(draws))
        if len(kinds) == 1:
            tokens = _choose(kinds[0], logits, rows)
        else:
            tokens = torch.empty_like(rows.slots)
            for kind in kinds:
                place = [i for i, draw in enumerate(draws) if draw == kind]
                at = upload(place, logits.device)
                tokens[at] = _choose(kind, logits[at], rows.select(place))
        return _checked(tokens, logits.amax(dim=-1))

    def is_gumbel(self, rows: Rows) -> bool:
        """Whether all rows draw by Gumbel-max."""
        return set(self.draws(rows)) == {"gumbel"}

    def draws(self, rows: Rows) -> tuple[Draw, ...]:
        """Return the draw method of each row; cached while the slots stay the same."""
        if self._last[0] != rows.host_slots:
            self._last = rows.host_slots, tuple(self._draws[slot] for slot in rows.host_slots)
        return self._last[1]


def _choose(draw: Draw, logits: Tensor, rows: Rows) -> Tensor:
    if draw == "greedy":
        return greedy(logits)
    method = gumbel_max if draw == "gumbel" else inverse_cdf
    return method(logits, rows.seeds, rows.positions)


def _checked(tokens: Tensor, top: Tensor) -> Tensor:
    # amax propagates NaN, so one number per row identifies empty and non-finite rows.
    tokens = torch.where(top == -torch.inf, EMPTY, tokens)
    return torch.where(top < torch.inf, tokens, NON_FINITE)


def greedy(logits: Tensor) -> Tensor:
    """Return the most likely token of each row [R]; the lowest id wins a tie."""
    return logits.argmax(dim=-1)


def gumbel_max(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw from softmax(logits) for each row [R]: argmax(logits + Gumbel noise)."""
    if logits.shape[1] <= PLAIN_LIMIT:
        return _plain(logits, seeds, positions)
    if logits.is_cuda:  # on a GPU hashing every id is cheap, and selecting rows would synchronise
        few = (logits > -torch.inf).sum(dim=-1) <= PLAIN_LIMIT
        both = (_plain(logits, seeds, positions), _two_level(logits, seeds, positions))
        return torch.where(few, *both)
    few, row, ids = few_finite(logits, PLAIN_LIMIT)
    if (count := int(few.sum())) == 0:
        return _two_level(logits, seeds, positions)
    tokens = _plain_sparse(logits, row, ids, seeds, positions)
    if count < len(logits):
        many = (~few).nonzero().squeeze(1)
        tokens[many] = _two_level(logits[many], seeds[many], positions[many])
    return tokens


def _plain(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    ids = torch.arange(logits.shape[1], device=logits.device)
    return (logits + gumbel(keys, ids)).argmax(dim=-1)


def _plain_sparse(logits: Tensor, row: Tensor, ids: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """As `_plain`, restricted to ids [N] of rows [N]; 0 for a row without ids."""
    keys = row_keys(seeds, positions, Stream.TOKEN)
    scores = logits[row, ids] + gumbel(keys[row], ids)
    best = scores.new_full((len(logits),), -torch.inf).scatter_reduce(0, row, scores, "amax")
    beyond = logits.shape[1]
    winners = torch.where(scores == best[row], ids, beyond)
    lowest = torch.full_like(seeds, beyond).scatter_reduce(0, row, winners, "amin")
    return torch.where(lowest < beyond, lowest, 0)


def _two_level(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    block = _noisy_best(block_sums(logits), seeds, positions)
    return _inside(*_of_block(logits, block, -torch.inf), seeds, positions)


def draw_by_weight(weights: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw by weights [R, V] >= 0 in two levels [R]; each row needs a weight above 0."""
    block = _noisy_best(_sums_of_blocks(weights).log_(), seeds, positions)
    ids, inside = _of_block(weights, block, 0)
    return _inside(ids, inside.log_(), seeds, positions)


def _noisy_best(sums: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Return the block [R, 1] with the largest log-sum-exp [R, B] plus noise."""
    keys = row_keys(seeds, positions, Stream.BLOCK)[:, None]
    blocks = torch.arange(sums.shape[1], device=sums.device)
    return (sums + gumbel(keys, blocks)).argmax(dim=-1, keepdim=True)


def _inside(ids: Tensor, logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Return the id [R] of a block with the largest logit [R, BLOCK] plus noise."""
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    choice = (logits + gumbel(keys, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, choice).squeeze(1)


def inverse_cdf(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw from softmax(logits) for each row [R] by inverse CDF: one uniform number, float64 sums."""
    found = find_block(logits, seeds, positions)
    choice, _ = invert(found.inside, found.rest)
    return found.ids.gather(1, choice).squeeze(1)


def find_block(logits: Tensor, seeds: Tensor, positions: Tensor) -> Inverted:
    """Return for each row the block that contains the draw by inverse CDF."""
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    sums = block_sums(logits)
    blocks = (sums - sums.amax(-1, keepdim=True)).exp()
    block, rest = invert(blocks, uniform(keys, torch.zeros_like(keys)))
    ids, inside = _of_block(logits, block, -torch.inf)
    inside = inside.to(torch.float64)
    return Inverted(blocks, block, rest, ids, (inside - inside.amax(-1, keepdim=True)).exp())


def invert(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index [R, 1] at which the cumulative weights [R, N] exceed u times their sum.

    The second result [R, 1] is the position of u within that index's weight, 0 to 1. An index of weight 0 is
    never returned, whatever the rounding.
    """
    sums = row_cumsums(weights)
    target = u * sums[:, -1:]
    place = torch.arange(weights.shape[1], device=weights.device)
    last = torch.where(weights > 0, place, 0).amax(dim=-1, keepdim=True)
    first = torch.where((sums > target) & (weights > 0), place, last).amin(dim=-1, keepdim=True)
    weight = weights.gather(1, first)
    return first, ((target - sums.gather(1, first) + weight) / weight).clamp(0, 1)


def block_sums(logits: Tensor) -> Tensor:
    """Log-sum-exp of each block, [R, V] -> [R, ceil(V / BLOCK)] float64, up to a constant per row."""
    parts = [_sums_of_blocks(softmax) for _, softmax in softmax_parts(logits)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).log_()


def _sums_of_blocks(weights: Tensor) -> Tensor:
    """Sum of each block of weights, [R, V] -> [R, ceil(V / BLOCK)] float64, without a padded copy."""
    whole = weights.shape[1] // BLOCK * BLOCK
    sums = [weights[:, :whole].view(len(weights), -1, BLOCK).sum(dim=-1)] if whole else []
    if whole < weights.shape[1]:
        sums.append(row_sums(weights[:, whole:]))
    return torch.cat(sums, dim=1).to(torch.float64)


def _of_block(values: Tensor, block: Tensor, beyond: float) -> tuple[Tensor, Tensor]:
    """Return ids and values [R, min(BLOCK, V)] of one block [R, 1] per row; past V the value is `beyond`."""
    ids = block * BLOCK + torch.arange(min(BLOCK, values.shape[1]), device=values.device)
    inside = values.gather(1, ids.clamp(max=values.shape[1] - 1))
    return ids, inside.masked_fill(ids >= values.shape[1], beyond)


def sampled(sampler: Sampler, logits: Tensor, rows: Rows) -> Tensor:
    """Return `sampler(logits, rows)`; on CUDA in two launches, four if a row draws by inverse CDF."""
    draws = sampler.draws(rows)
    if not logits.is_cuda:
        return sampler(logits, rows)
    from processors.kernels.choice.choose_rows import Given, Kind, choose

    kind: Kind = "greedy" if set(draws) == {"greedy"} else "draw"
    if "multinomial" in draws:
        kind = "draw-inverse"
    seeds, positions = rows.seeds.contiguous(), rows.positions.contiguous()
    return choose(Given(logits, _controls(draws, logits.device), seeds, positions), kind)


@lru_cache(64)
def _controls(draws: tuple[Draw, ...], device: torch.device) -> Tensor:
    """Return controls [R, C] with the draw method of each row and all stages off."""
    from processors.kernels.choice.tables import Control, without_stages

    lines = [without_stages() for _ in draws]
    for line, draw in zip(lines, draws, strict=True):
        line[Control.GREEDY], line[Control.INVERSE] = float(draw == "greedy"), float(draw == "multinomial")
    return upload(lines, device, torch.float64)


FUSED = ("temperature", "min_p", "top_k", "top_p")  # stages that may be fused with the draw, in default order
_Program = tuple[StageCall, ...]
_MOST_PLANS = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows of a step whose chains end with the same fused stages; `places` None: all rows.

    `tail`: values of the fused stages. None: `stages` run one after the other, for example at a temperature
    of 0.
    """

    places: tuple[int, ...] | None
    stages: tuple[Key, ...]
    tail: Tail | None


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Plan for the rows of these slots: the calls before the fused stages (`head`), and groups of rows.

    No groups: nothing is fused.
    """

    slots: tuple[int, ...]
    program: _Program | None
    head: _Program
    groups: tuple[_Group, ...]


class Chooser:
    """Chooses the tokens that `sampler(pipeline(logits, rows), rows)` would choose.

    On a CPU the last stages of a chain are fused with the draw (see processors.fused) if they are built-in
    stages in default order, no stage is traced, every row draws by Gumbel-max, and NumPy is installed. On
    CUDA DeviceChoice chooses.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, graphs: Graphs | None = None) -> None:
        self._pipeline, self._sampler = pipeline, sampler
        self._graphs = graphs
        self._plan = _Plan((), None, (), ())
        self._plans: dict[int, _Plan] = {}  # by id(program); conditions alternate between a few programs

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for the model's logits [R, V], negative for a failed row, as Sampler."""
        pipeline, sampler = self._pipeline, self._sampler
        if logits.is_cuda and not pipeline.is_traced:
            return self._on_device(logits, rows)
        may_fuse = logits.device.type == "cpu" and not pipeline.is_traced and sampler.is_gumbel(rows)
        groups = self._planned(rows).groups if may_fuse else ()
        if not groups:
            return sampler(pipeline(logits, rows), rows)
        work = pipeline.run(self._plan.head, logits, rows).contiguous()
        if groups[0].places is None:
            return self._chosen(groups[0], work, rows)
        tokens = torch.empty_like(rows.slots)
        for group in groups:
            at = upload(group.places, work.device)
            tokens[at] = self._chosen(group, work.index_select(0, at), rows.select(group.places or ()))
        return tokens

    def process(
        self,
        logits: Tensor,
        rows: Rows,
        seen: Seen | None = None,
        *,
        reads: bool = True,
        seeds: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the processed logits [R, V] and the tokens [R], for steps that may need both.

        On CUDA, unless traced, the logits are None if the caller does not need them (`reads`). Otherwise the
        tokens are None: the caller samples from the logits. `seen(stage, logits)` is called after each stage.
        `seeds` [R]: seeds of the draw on CUDA, by default those of the rows.
        """
        if not logits.is_cuda or self._pipeline.is_traced:
            return self._pipeline(logits, rows, seen), None
        if not reads:
            return None, self._on_device(logits, rows, seeds)
        return self._on_device.process(logits, rows, seen, seeds)

    @cached_property
    def _on_device(self) -> DeviceChoice:
        from processors.choose_on_device import DeviceChoice

        return DeviceChoice(self._pipeline, self._sampler, self._graphs)

    def _chosen(self, group: _Group, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [A] for the logits [A, V] before the group's stages."""
        if group.tail is None:
            return self._stepwise(group, logits, rows)
        from processors.fused import choose_fused

        choice = choose_fused(logits, group.tail, rows)
        tokens, at = torch.from_numpy(choice.tokens), choice.uncertain
        if len(at):
            tokens[at] = self._stepwise(group, logits[at], rows.select(at.tolist()))
        return tokens

    def _stepwise(self, group: _Group, logits: Tensor, rows: Rows) -> Tensor:
        """Return the tokens [A] by the group's stages, one by one, and the sampler. May edit the logits."""
        for key in group.stages:
            logits = self._pipeline.stage(*key).apply(logits, rows)
        return self._sampler(logits, rows)

    def _planned(self, rows: Rows) -> _Plan:
        """Return the plan for the rows' slots; rebuilt when the pipeline's program changes."""
        program = self._pipeline.program(rows)
        if program is not self._plan.program or rows.host_slots != self._plan.slots:
            known = self._plans.get(id(program))
            if known is None or known.program is not program or known.slots != rows.host_slots:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                found = self._split(program, rows) if _has_numpy() else (program, ())
                known = self._plans[id(program)] = _Plan(rows.host_slots, program, *found)
            self._plan = known
        return self._plan

    def _split(self, program: _Program, rows: Rows) -> tuple[_Program, tuple[_Group, ...]]:
        """Split a program into the calls before the fused stages, and groups of rows that fuse the others."""
        from processors.fused import Tail

        pipeline, first = self._pipeline, len(program)
        while first and _may_be_fused(program[first - 1].stage, pipeline.registry):
            first -= 1
        stages: dict[int, tuple[Key, ...]] = dict.fromkeys(range(len(rows)), ())
        for call in program[first:]:
            for place in stages if call.places is None else call.places:
                stages[place] += (call.key,)
        kinds: dict[tuple[Key, ...], list[int]] = {}
        for place, keys in stages.items():
            kinds.setdefault(keys, []).append(place)
        groups = []
        for keys, places in kinds.items():
            some, names = rows if len(kinds) == 1 else rows.select(places), [name for name, _ in keys]
            tail = Tail.of({key[0]: pipeline.stage(*key) for key in keys}, some)
            is_left = tail is None and len(kinds) > 1 and names == ["temperature"]
            if (tail is None and not is_left) or names != [name for name in FUSED if name in names]:
                return program, ()
            groups.append(_Group(None if len(kinds) == 1 else tuple(places), keys, tail))
        return program[:first], tuple(groups)


def _may_be_fused(name: str, registry: Registry) -> bool:
    return name in FUSED and registry.is_builtin(name)


@cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


_LEAST = -1e30  # log-probability of an id masked by an early layer


def fold(logits: Tensor, companion: Tensor, scale: Tensor, cutoff: Tensor) -> Tensor:
    """Return u + scale (c - u) [G, V] float32, c and u the log-probabilities of logits and companion.

    logits and companion [G, V] are raw logits. scale [G] >= 0: 1 gives c, 0 gives u. Ids whose probability
    under c is below cutoff [G] times the largest are masked (plausibility constraint; 0 masks none). An id
    masked in either input is masked in the result.
    """
    least = logits.amax(dim=-1, keepdim=True) + cutoff[:, None].log()  # -inf for a cutoff of 0
    forbidden = (logits == -torch.inf) | (companion == -torch.inf) | (logits < least)
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u = companion.log_softmax(dim=-1, dtype=torch.float32)
    return c.sub_(u).mul_(scale[:, None]).add_(u).masked_fill_(forbidden, -torch.inf)


def contrast_layers(logits: Tensor, early: Iterable[tuple[Tensor, Tensor]], cutoff: Tensor) -> Tensor:
    """Return c - u [D, V] float32: log-probabilities of the last layer minus those of an early one (DoLa).

    `early` yields for each early layer its logits [D, V], and the rows [D] bool for which it is a candidate.
    u of a row is the candidate layer farthest from c by Jensen-Shannon divergence; a row without candidates
    is c itself. Ids below cutoff [D] times the largest probability are masked, as in `fold`. An id masked in
    logits is masked in the result; an id masked only in the early layer has log-probability -1e30 there.
    """
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u, farthest = torch.zeros_like(c), c.new_full((len(c), 1), -torch.inf)
    for layer, is_candidate in early:
        other = layer.log_softmax(dim=-1, dtype=torch.float32).clamp_(min=_LEAST)
        distance = _divergence(c, other)
        is_farther = is_candidate[:, None] & (distance > farthest)
        u, farthest = torch.where(is_farther, other, u), torch.where(is_farther, distance, farthest)
    least = c.amax(dim=-1, keepdim=True) + cutoff[:, None].log()
    return torch.where(c < least, -torch.inf, c.sub(u))


def _divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence [D, 1] in nats of two rows of log-probabilities [D, V]."""
    halves = [side.exp() for side in (one, other)]
    middle = (halves[0] + halves[1]).mul_(0.5).log_()
    each = zip(halves, (one, other), strict=True)
    parts = [half.mul_(side - middle).nan_to_num_(0.0) for half, side in each]
    return row_sums(parts[0] + parts[1]).mul_(0.5)


def directions(states: Tensor) -> Tensor:
    """Return states [N, H] as float32 of length 1; a state of zeros stays as it is."""
    return normalize(states.float(), dim=-1)


def contrastive_scores(probabilities: Tensor, states: Tensor, before: Tensor, alpha: float) -> Tensor:
    """Return the scores [K] float64 of K candidates.

    `probabilities` [K] float64; `states` [K, H] and `before` [L, H] are directions, L > 0.
    """
    likeness = (states @ before.T).amax(dim=1).double()
    return (1 - alpha) * probabilities - alpha * likeness
