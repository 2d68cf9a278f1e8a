"""The cost of a draft token, fitted over steps of all sizes; guesses that bring less are left out."""

from itertools import product

import pytest

from gencli.speculative.adaptive_drafts import StepCostModel

SIZES = (1, 2, 5, 1, 3, 9, 1, 4, 2, 7, 1, 6)


def fitted(sizes=SIZES, *, base=0.0, slope=0.0):
    model = StepCostModel()
    for size in sizes:
        model.observe(size, base + slope * size)
    return model


def test_it_is_the_share_of_a_plain_step_that_one_token_per_text_takes():
    for (base, slope), lanes in product(((1.0, 0.0), (3.0, 1.0), (0.5, 2.0), (0.0, 1.0)), (1, 4)):
        share = slope * lanes / (base + slope * lanes)
        assert fitted(base=base, slope=slope).draft_cost(lanes) == pytest.approx(share), (base, slope, lanes)
    for sizes in ((), (1, 2), (3,) * 20):  # without steps of several sizes it is none
        assert fitted(sizes, slope=1.0).draft_cost(1) == 0, sizes
    assert fitted(base=100.0, slope=-1.0).draft_cost(4) == 0  # more tokens are never less work


def test_old_steps_fade():
    model = fitted(base=3.0, slope=1.0)
    for _ in range(20):
        for size in SIZES:
            model.observe(size, 5.0)
    assert model.draft_cost(1) < 0.001
