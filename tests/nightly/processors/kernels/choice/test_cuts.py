"""The kernels find the same cut by lists, histograms and halving as PyTorch by sorting, bit for bit."""

from itertools import product

import pytest
import torch

from processors.kernels.choice.tables import CAPACITY, Mark
from tests.processors.kernels.choice.cases import KINDS, SHAPES, controls_of, made, patches_of
from tests.slow.processors.kernels.choice.test_cuts import CUTS, check


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_agree_on_all_cuts_of_all_kinds_of_logits(kind):
    for cut in CUTS:
        check(made(kind, 2, 600), controls_of(2, **CUTS[cut]), case=(cut, kind))


def test_the_kernels_agree_on_all_logits_with_patches():
    for cut, width in product(("k", "p", "all", "flat", "without a temperature"), (600, 12_000)):
        logits = made("normal", 2, width)
        check(logits, controls_of(2, **CUTS[cut]), patches_of(logits), (cut, width))


def test_a_bin_that_is_looked_at_in_the_row_has_its_patches():
    logits = torch.zeros(2, 2 * CAPACITY)
    marks = check(logits, controls_of(2, TOP_P=0.9, heat=1.0), patches_of(logits))[-1]
    assert marks[1, Mark.IN_BINS] > CAPACITY


def test_the_kernels_agree_on_rows_of_any_width():
    for cut, shape in product(("all", "p first", "large k", "flat"), SHAPES):
        check(made("whole numbers", *shape), controls_of(shape[0], **CUTS[cut]), case=(cut, shape))


# Each cut once, and each kind of logits.
TELLING = dict(zip(CUTS, 2 * [*KINDS], strict=True))


def test_the_kernels_agree_on_each_cut_and_kind_of_logits():
    for cut, kind in TELLING.items():
        check(made(kind, 2, 600), controls_of(2, **CUTS[cut]), case=(cut, kind))


def test_a_bin_of_more_than_a_list_holds_is_looked_at_in_the_row():
    logits = torch.zeros(2, CAPACITY + 1200)
    logits[:, 7], logits[1, 4000:] = 3.0, -20.0
    marks = check(logits, controls_of(2, TOP_P=0.9, heat=1.0))[-1]
    assert (marks[0, Mark.IN_BINS] > CAPACITY, marks[0, Mark.COLLECTED]) == (True, 0)
