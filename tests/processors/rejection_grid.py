"""A grid of chains and pairs of models: do texts that are drafted have the distribution without drafts?

`gap` draws texts with drafts that are verified by rejection, rightly or with a fault, and compares them with
their exact probabilities. The tests and scripts/rejection_table.py share it.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import torch

from processors.chain import Chain
from processors.history import History
from processors.kernels.operations import token_probability
from processors.request_values import Verification
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.sampler import Sampler, gumbel_max
from processors.stages.grammar_stage import GrammarParams
from processors.verification import Proposal, Verifier
from tests.processors.rejection_texts import DRAFTS, NEVER, PAIRS, WIDTH, Texts

PART = 2048  # texts that are drawn at once
RISK = 1e-6  # that a right distribution is beyond the bound

GRAMMAR = (("grammar", GrammarParams("[a-c][a-e]{2,9}|db[a-f]{2,9}|e[ab]{2,9}|f[a-d]{2,9}", "regex")),)
BANS = 'ban=["ca", "bd", "ee", "f", "dbc"]'
PENALTIES = "repetition=1.4 | frequency=1.5 | presence=0.5"
CUTS = "temperature=0.8 | top_k=4 | top_p=0.97 | min_p=0.02"
ALL = Chain((*GRAMMAR, *Chain.parse(f"{BANS} | {PENALTIES} | {CUTS}").stages))


@dataclass(frozen=True)
class Behind:
    """A chain, and the probability below which drafts are dropped."""

    chain: Chain
    least: float = 0.0


CHAINS = {
    "temperature": Behind(Chain.parse("temperature=0.5")),
    "top-k": Behind(Chain.parse("top_k=3")),
    "top-p": Behind(Chain.parse("top_p=0.7")),
    "min-p": Behind(Chain.parse("min_p=0.3")),
    "penalties": Behind(Chain.parse(PENALTIES)),
    "bans": Behind(Chain.parse(BANS)),
    "grammar": Behind(Chain(GRAMMAR)),
    "all": Behind(ALL),
    "all, drafts dropped": Behind(ALL, 0.35),
}


@dataclass(frozen=True)
class Way:
    """How drafts are drawn, and what the verification is told of it. All but the defaults is a fault.

    `ratio` is the q that decides what stands, `rest` the one that p loses where a draft does not.
    """

    ratio: str = "q"
    rest: str = "q"
    noise: str = "own"
    is_p_raw: bool = False


RIGHT = Way()
FAULTS = {
    "raw q": Way("raw", "raw"),
    "raw q in the ratio": Way("raw", "q"),
    "raw q in the rest": Way("q", "raw"),
    "raw p": Way(is_p_raw=True),
    "p as the rest": Way("q", "never"),
    "p but the draft as the rest": Way("q", "draft"),
    "noise of the acceptance": Way(noise="acceptance"),
}
FAULTS_OF_DROPPING = {
    "noise of the target": Way(noise="target"),
    "q with what is dropped": Way("whole", "whole"),
}


@dataclass(frozen=True)
class Gap:
    """Chi-square of counted texts against their probabilities; texts that are seldom due are one cell."""

    draws: int
    chi_square: float
    freedom: int

    @classmethod
    def of(cls, counts, chances):
        """counts and chances [N] float64; infinite where a text came that cannot."""
        due = chances * counts.sum()
        often = due >= 5
        got, want = (torch.cat([side[often], side[~often].sum()[None]]) for side in (counts, due))
        used = want >= 5
        gaps = float(((got - want) ** 2 / want)[used].sum())
        is_possible = float(counts[chances == 0].sum()) == 0
        return cls(int(counts.sum()), gaps if is_possible else math.inf, int(used.sum()) - 1)

    @property
    def bound(self):
        """What a right distribution is beyond once in 1 / RISK (Wilson, Hilferty 1931)."""
        spread = 2 / (9 * self.freedom)
        return self.freedom * (1 - spread + NormalDist().inv_cdf(1 - RISK) * math.sqrt(spread)) ** 3

    @property
    def is_wide(self):
        """Whether the texts have another distribution."""
        return self.chi_square > self.bound


@lru_cache(len(PAIRS))
def texts(name, pair):
    """The texts behind a chain of the grid."""
    return Texts(CHAINS[name].chain, pair)


def gap(name, pair, draws, way=RIGHT, *, first_seed=0):
    """Draw as many texts in a cell of the grid, and compare."""
    known = texts(name, pair)
    maker = _Maker(known, way, CHAINS[name].least)
    size = len(known.chances)
    counts = torch.zeros(size + 1, dtype=torch.float64)  # the last one is for all that cannot come
    for seeds in (first_seed + torch.arange(draws)).split(PART):
        counts += maker.drawn(seeds).bincount(minlength=size + 1)
    whole = torch.where(torch.arange(size) < known.num_open, 0, known.chances)
    return Gap.of(counts, torch.cat([whole, torch.zeros(1)]))


class _Maker:
    """Draws texts as an engine does whose drafter has a model: steps of two drafts at the most."""

    def __init__(self, known, way, least):
        self._known, self._way, self._least = known, way, least
        self._history, sampler = History(slots=1), Sampler()
        self._history.admit(0, [0], seed=0)
        sampler.admit(0, "gumbel")
        self._verifier = Verifier(sampler)
        self._verifier.admit(0, Verification("rejection"))

    def drawn(self, seeds):
        """The texts [N] of as many seeds; one more than there are where one cannot come."""
        known = self._known
        at = torch.zeros_like(seeds)
        while len(todo := (at < known.num_open).nonzero().squeeze(1)):
            at[todo] = self._step(at[todo], seeds[todo])
        return at

    def _step(self, at, seeds):
        """The longer texts [M]."""
        first, is_kept = self._draft(self._known.q[at, 0, 0, 0], seeds, self._known.places[at])
        second, is_next = self._draft(self._known.q[at, first, 0, 1], seeds, self._known.places[at] + 1)
        sizes = is_kept.long() + (is_kept & is_next)
        drafts, longer = torch.stack([first, second], dim=1), torch.empty_like(at)
        for size in range(DRAFTS + 1):
            mine = (sizes == size).nonzero().squeeze(1)
            if len(mine):
                longer[mine] = self._verified(at[mine], seeds[mine], drafts[mine], size)
        return longer

    def _draft(self, q, seeds, places):
        """Tokens [M] drawn from logits [M, WIDTH], and whether they are probable enough."""
        if self._way.noise == "acceptance":
            u = uniform(row_keys(seeds, places, Stream.ACCEPT), torch.zeros_like(seeds))
            found = torch.searchsorted(q.double().softmax(-1).cumsum(-1), u[:, None]).squeeze(1)
            return found.clamp(max=NEVER - 1), found >= 0
        apart = row_keys(seeds, torch.zeros_like(places), Stream.DRAFT)
        found = gumbel_max(q, apart if self._way.noise == "own" else seeds, places)
        return found, token_probability(q, found) >= self._least

    def _verified(self, at, seeds, drafts, size):
        """The texts with those of the first `size` drafts that stand, and one token more."""
        known = self._known
        rows = Rows.build(self._history, [0] * len(at), drafts[:, :size].tolist())
        places = (known.places[at, None] + torch.arange(size + 1)).flatten()
        rows = replace(rows, seeds=seeds.repeat_interleave(size + 1), positions=places)
        behind = at, drafts[:, 0], drafts[:, 1]
        last = torch.cat([known.last[at, None], drafts], dim=1)
        p = known.target[last] if self._way.is_p_raw else known.p[behind]
        proposal = self._proposal(known.q[behind], known.source[last], drafts, size) if size else None
        tokens, counts = self._verifier(p[:, : size + 1].flatten(0, 1), rows, proposal)
        for place in range(size + 1):
            moves = (place < counts) & (at < known.num_open)
            longer = known.after[at.clamp(max=known.num_open - 1), tokens[:, place]]
            at = torch.where(moves, torch.where(longer < 0, len(known.chances), longer), at)
        return at

    def _proposal(self, q, raw, drafts, size):
        """What is said of the drafts: logits [M * size, WIDTH] of each kind."""
        ids = torch.arange(WIDTH)
        said = {
            "q": q.masked_fill(q.softmax(-1) < self._least, -math.inf),
            "whole": q,
            "raw": raw,
            "draft": torch.where(ids == torch.nn.functional.pad(drafts, (0, 1))[..., None], 0, -math.inf),
            "never": torch.where(ids == NEVER, 0, -math.inf).expand_as(q),
        }
        ratio, rest = (said[kind][:, :size].flatten(0, 1) for kind in (self._way.ratio, self._way.rest))
        chances = token_probability(ratio, drafts[:, :size].flatten())
        return Proposal(rest, (True,) * len(rest), chances)
