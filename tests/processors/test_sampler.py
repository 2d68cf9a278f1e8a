"""Draws follow the softmax, depend on nothing but their own row, and never leave the support."""

import math
from itertools import product

import torch

from processors.history import History
from processors.kernels.operations import few_finite
from processors.rows import Rows
from processors.sampler import (
    BLOCK,
    EMPTY,
    NON_FINITE,
    PLAIN_LIMIT,
    Sampler,
    _plain,
    _plain_sparse,
    _two_level,
    greedy,
    gumbel_max,
    inverse_cdf,
    invert,
)

INF = math.inf


DRAWS = 40_000


def sparse(logits, seeds, positions):
    """The draw among the finite logits alone."""
    _, row, ids = few_finite(logits, logits.shape[1])
    return _plain_sparse(logits, row, ids, seeds, positions)


def counts_of(draw, logits, draws=DRAWS):
    """How often each id is drawn from one row of logits, over as many positions."""
    counts = torch.zeros(len(logits))
    for start in range(0, draws, 2000):
        positions = torch.arange(start, start + 2000)
        tokens = draw(logits.expand(2000, -1), torch.full((2000,), 99), positions)
        counts += torch.bincount(tokens, minlength=len(logits))
    return counts


def chi_square(counts, logits):
    """Statistic and degrees of freedom; ids expected less than five times are pooled."""
    expected = torch.softmax(logits.double(), 0) * counts.sum()
    small = expected < 5
    pooled_counts = torch.cat([counts[~small].double(), counts[small].sum().view(1).double()])
    pooled_expected = torch.cat([expected[~small], expected[small].sum().view(1)])
    used = pooled_expected > 0
    gaps = (pooled_counts - pooled_expected)[used]
    return float((gaps**2 / pooled_expected[used]).sum()), int(used.sum()) - 1


def masked_logits(width, seed=0):
    logits = 2 * torch.randn(width, generator=torch.Generator().manual_seed(seed))
    logits[::7] = -INF
    return logits


def test_survivors_alone_and_full_width_draw_the_same_token():
    logits = torch.randn(64, 9000, generator=torch.Generator().manual_seed(1))
    logits[:, 300:] = -INF
    seeds, positions = torch.arange(64), torch.arange(64) * 3
    assert torch.equal(gumbel_max(logits, seeds, positions), _plain(logits[:, :300], seeds, positions))
    assert torch.equal(_plain(logits, seeds, positions), sparse(logits, seeds, positions))


def test_the_number_of_finite_logits_picks_the_form():
    for finite in (PLAIN_LIMIT, PLAIN_LIMIT + 1):
        logits = torch.full((1, 9000), -INF)
        logits[0, :finite] = torch.randn(finite, generator=torch.Generator().manual_seed(2))
        form = _plain if finite <= PLAIN_LIMIT else _two_level
        drawn = [gumbel_max(logits, torch.tensor([5]), torch.tensor([p])).item() for p in range(40)]
        assert drawn == [form(logits, torch.tensor([5]), torch.tensor([p])).item() for p in range(40)], finite


def test_a_row_draws_the_same_alone_and_among_others():
    for case in product((gumbel_max, inverse_cdf), (600, 9000)):
        draw, width = case
        logits = torch.randn(12, width, generator=torch.Generator().manual_seed(3))
        logits[::2, 50:] = -INF
        seeds, positions = torch.arange(12), torch.arange(12) + 5
        together = draw(logits, seeds, positions)
        order = torch.randperm(12, generator=torch.Generator().manual_seed(4))
        assert torch.equal(draw(logits[order], seeds[order], positions[order]), together[order]), case
        for i in range(12):
            assert draw(logits[i : i + 1], seeds[i : i + 1], positions[i : i + 1]) == together[i], case


def test_a_single_finite_logit_is_always_drawn():
    for draw, place in product((_plain, sparse, _two_level, inverse_cdf), (0, BLOCK - 1, BLOCK, 1299)):
        logits = torch.full((50, 1300), -INF)
        logits[:, place] = -80.0
        assert (draw(logits, torch.arange(50), torch.arange(50)) == place).all(), (draw, place)


def test_rows_with_few_and_with_many_finite_logits_anywhere_mix():
    logits = torch.randn(6, 30_000, generator=torch.Generator().manual_seed(6))
    logits[0, 20:], logits[1, :29_980], logits[2, :20_000], logits[3] = -INF, -INF, -INF, -INF
    logits[4, : 2 * PLAIN_LIMIT] = -INF
    seeds, positions = torch.arange(6), torch.arange(6) * 2
    few, many = sparse(logits, seeds, positions), _two_level(logits, seeds, positions)
    together = gumbel_max(logits, seeds, positions)
    assert torch.equal(together, torch.cat([few[:2], many[2:3], few[3:4], many[4:]]))


def test_inverse_cdf_takes_ids_in_order():
    logits = torch.zeros(200, 4).log_softmax(-1)
    seeds = torch.arange(200)
    tokens = inverse_cdf(logits, seeds, torch.zeros_like(seeds))
    assert sorted(set(tokens.tolist())) == [0, 1, 2, 3]


def test_the_end_of_the_cumulative_weights_is_the_last_id_with_a_weight():
    choice, rest = invert(torch.tensor([[2.0, 1.0, 0.0]]).double(), torch.ones(1, 1).double())
    assert (choice.item(), rest.item()) == (1, 1)


def sampler_rows(draws):
    history = History(slots=len(draws))
    sampler = Sampler()
    for slot, draw in enumerate(draws):
        history.admit(slot, [1, 2], seed=slot)
        sampler.admit(slot, draw)
    return sampler, Rows.build(history, range(len(draws)))


def test_rows_of_different_methods_mix():
    draws = ["greedy", "gumbel", "multinomial", "greedy", "gumbel"]
    sampler, rows = sampler_rows(draws)
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(5))
    tokens = sampler(logits, rows)
    methods = {"gumbel": gumbel_max, "multinomial": inverse_cdf}
    for i, draw in enumerate(draws):
        one = slice(i, i + 1)
        alone = (
            greedy(logits[one])
            if draw == "greedy"
            else methods[draw](logits[one], rows.seeds[one], rows.positions[one])
        )
        assert tokens[i] == alone


def test_a_slot_that_is_admitted_again_draws_by_its_new_method():
    sampler, rows = sampler_rows(["greedy"])
    logits = torch.zeros(1, 50)
    assert sampler(logits, rows).item() == 0
    sampler.admit(0, "gumbel")
    assert sampler(logits, rows) == gumbel_max(logits, rows.seeds, rows.positions) != 0


def test_greedy_takes_the_lowest_id_of_a_tie():
    assert greedy(torch.tensor([[0.0, 3.0, 3.0, 1.0]])).item() == 1


def test_rows_without_a_choice_are_marked_and_their_neighbours_go_on():
    for draw in ("greedy", "gumbel", "multinomial"):
        sampler, rows = sampler_rows([draw] * 4)
        logits = torch.zeros(4, 9)
        logits[0] = -INF
        logits[1, 3] = math.nan
        logits[2, 3] = INF
        tokens = sampler(logits, rows).tolist()
        assert tokens[:3] == [EMPTY, NON_FINITE, NON_FINITE], draw
        assert 0 <= tokens[3] < 9, draw
