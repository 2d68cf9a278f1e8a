"""Probabilities of large values are those of torch, and go on where floats end."""

import math

import pytest
import torch

from gencli.tail_probabilities import ln_binomial_tail, ln_gamma_tail, ln_normal_tail


def test_known_values():
    assert math.exp(ln_normal_tail((60 - 25) / math.sqrt(18.75))) == pytest.approx(3.162126e-16, rel=1e-6)
    assert math.exp(ln_gamma_tail(30, 20)) == pytest.approx(0.0218734684414)
    assert math.exp(ln_binomial_tail(3, 4, 0.25)) == pytest.approx(13 / 256)
    assert math.exp(ln_binomial_tail(1, 4, 0.25)) == pytest.approx(1 - 81 / 256)


def test_the_gamma_tail_is_that_of_torch():
    for shape in [0.3, 1, 20, 200.7, 1e4]:
        for factor in (0.01, 0.5, 0.9, 1, 1.02, 1.3, 2):
            score = shape * factor
            expected = float(torch.special.gammaincc(*torch.tensor([shape, score], dtype=torch.float64)))
            assert math.exp(ln_gamma_tail(score, shape)) == pytest.approx(expected, rel=1e-8, abs=1e-300), (
                shape
            )


def test_the_binomial_tail_is_a_sum():
    for trials, chance in ((7, 0.25), (30, 0.5), (40, 0.1)):
        terms = [math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)]
        for hits in range(trials + 1):
            found = math.exp(ln_binomial_tail(hits, trials, chance))
            assert found == pytest.approx(math.fsum(terms[hits:]), rel=1e-9)


def test_tails_go_on_below_the_smallest_float():
    assert ln_normal_tail(100) == pytest.approx(-5005.524, rel=1e-6)
    assert ln_normal_tail(29.9999) == pytest.approx(ln_normal_tail(30.0001), rel=1e-4)
    assert ln_binomial_tail(5000, 5000, 0.25) == pytest.approx(5000 * math.log(0.25))
    assert -4900 < ln_gamma_tail(5000, 20) < -4800
    assert ln_gamma_tail(0, 5) == ln_binomial_tail(0, 5, 0.1) == 0
