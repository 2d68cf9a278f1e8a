"""Whatever drafts were drawn from, the tokens that stand follow the target's distribution."""

import math

import torch

from processors.sampler import gumbel_max
from processors.verification import Proposal, rejection
from tests.processors.test_rejection import rows_of


def chi_square(counts, expected):
    """Statistic over the ids that can come, in units of its own spread above its mean."""
    used = expected > 0
    assert counts[~used].sum() == 0
    gaps = (counts[used] - expected[used]) ** 2 / expected[used]
    freedom = int(used.sum()) - 1
    return float(gaps.sum() - freedom) / math.sqrt(2 * max(freedom, 1))


TOY = {
    "equal": ([1, 2, 3, 4], [1, 2, 3, 4]),
    "close": ([1, 2, 3, 4], [2, 2, 3, 3]),
    "far": ([8, 1, 1, 0.1], [0.1, 1, 1, 8]),
    "target narrower": ([0, 1, 0, 3], [1, 1, 1, 1]),
    "draft narrower": ([1, 1, 1, 1], [0, 1, 0, 3]),
    "no overlap": ([1, 2, 0, 0], [0, 0, 1, 2]),
    "target certain": ([0, 0, 1, 0], [1, 1, 1, 1]),
    "draft certain": ([1, 2, 3, 4], [0, 0, 1, 0]),
}


DRAWS = 50_000  # of each pair, 400,000 in all


def drawn_tokens(target, source, *, told=None, draws=DRAWS):
    """The first token that stands, and the second where there is one, over as many seeds."""
    seeds = torch.arange(draws)
    first = gumbel_max(source.expand(draws, -1), seeds + 10**6, torch.zeros_like(seeds))
    rows, sampler = rows_of([(int(x),) for x in first.tolist()], seeds=seeds.tolist())
    told = source if told is None else told
    proposal = Proposal(told.expand(draws, -1), (True,) * draws)
    tokens, counts = rejection(target.repeat(2 * draws, 1), rows, sampler, proposal)
    return tokens[:, 0], tokens[counts == 2, 1]


def test_tokens_follow_the_target():
    for name in ("close", "far", "draft narrower"):
        check(name)


def check(name):
    target, source = (torch.tensor(side, dtype=torch.float32).log() for side in TOY[name])
    for tokens in drawn_tokens(target, source):
        expected = target.double().softmax(0) * len(tokens)
        assert chi_square(tokens.bincount(minlength=4).double(), expected) < 4, name


def test_what_was_drawn_from_something_else_is_noticed():
    target, source = torch.tensor([1.0, 2, 3, 4]).log(), torch.tensor([4.0, 3, 2, 1]).log()
    raw = source * 0.5  # as before the draft's temperature
    tokens, _ = drawn_tokens(target, source, told=raw)
    expected = target.double().softmax(0) * len(tokens)
    assert chi_square(tokens.bincount(minlength=4).double(), expected) > 20
