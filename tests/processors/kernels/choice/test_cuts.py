"""The kernels find the same cut by histograms and halving as PyTorch by sorting, bit for bit."""

import pytest
import torch

from processors.kernels.choice.bins import fill_bins_torch, find_window_torch
from processors.kernels.choice.cuts import collect_torch, cut_torch
from processors.kernels.choice.draws import kept
from processors.kernels.choice.facts import block_facts_torch
from processors.kernels.choice.parts import CAPACITY, Mark
from processors.kernels.choice.rows import row_facts_torch
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import KINDS, SHAPES, controls_of, made

EXACT = [mark for mark in Mark if mark not in (Mark.LEAST, Mark.TOTAL, Mark.MASS_BEFORE)]
MASSES = [Mark.TOTAL, Mark.MASS_BEFORE]
HOME = "processors.kernels.choice"
CUTS = {
    "k": {"TOP_K": 7},
    "large k": {"TOP_K": 4500},
    "k and its ties": {"TOP_K": 3, "KEEP_TIES": 1},
    "p": {"TOP_P": 0.9},
    "small p": {"TOP_P": 1e-9},
    "p without what crosses it": {"TOP_P": 0.6, "EXCLUSIVE": 1},
    "min-p": {"MIN_P": 0.05},
    "min-p of 1": {"MIN_P": 1.0},
    "all": {"MIN_P": 0.01, "TOP_K": 50, "TOP_P": 0.9},
    "p first": {"MIN_P": 0.01, "TOP_K": 50, "TOP_P": 0.9, "IS_K_LATE": 1, "IS_MIN_LATE": 1},
    "min-p last": {"MIN_P": 0.3, "TOP_K": 300, "TOP_P": 0.8, "IS_MIN_LATE": 1},
    "flat": {"TOP_P": 0.95, "heat": 9.0},
    "without a temperature": {"TOP_K": 40, "TOP_P": 0.5, "heat": 0},
    "off": {},
}


def until_cut(logits, controls, *, kernels=False):
    """Marks after the cut, the orders that were collected, and the tables that the kernels share."""
    facts = block_facts_torch(logits, controls)
    levels, marks, bins = row_facts_torch(facts, controls, True)
    named = (
        ("bins", fill_bins_torch),
        ("bins", find_window_torch),
        ("cuts", collect_torch),
        ("cuts", cut_torch),
    )
    functions = [
        interpreted(f"{HOME}.{module}_triton", one.__name__.replace("_torch", "_triton")) if kernels else one
        for module, one in named
    ]
    fill, find, collect, cut = functions
    fill(logits, controls, levels, facts, marks, bins)
    find(bins, controls, levels, marks)
    listed = collect(logits, controls, levels, facts, marks)
    cut(logits, controls, levels, listed, marks)
    count = marks[:, Mark.COLLECTED, None]
    held = torch.where(torch.arange(listed.shape[1]) < count, listed, 0).sort(1).values
    return marks, held, bins, levels


def check(logits, controls):
    """Return the marks, which both have, but for the last bits of masses and an order between two logits."""
    marks, listed, bins, levels = until_cut(logits, controls)
    found, same_list, same_bins, _ = until_cut(logits, controls, kernels=True)
    assert torch.equal(kept(logits, controls, levels, found), kept(logits, controls, levels, marks))
    assert torch.equal(found[:, EXACT], marks[:, EXACT])
    assert torch.equal(same_list, listed)
    assert torch.equal(same_bins[:, 0], bins[:, 0])
    for sums, same in ((bins[:, 1], same_bins[:, 1]), (marks[:, MASSES], found[:, MASSES])):
        assert torch.allclose(sums.double(), same.double(), rtol=1e-12, atol=2**10)
    return marks


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_agree(cut, kind):
    check(made(kind, 2, 600), controls_of(2, **CUTS[cut]))


@pytest.mark.parametrize("cut", ["all", "p first", "large k", "flat"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernels_agree_on_rows_of_any_width(cut, shape):
    check(made("whole numbers", *shape), controls_of(shape[0], **CUTS[cut]))


def test_a_bin_of_more_than_a_list_holds_is_looked_at_in_the_row():
    logits = torch.zeros(2, CAPACITY + 1200)
    logits[:, 7], logits[1, 4000:] = 3.0, -20.0
    controls = controls_of(2, TOP_P=0.9, heat=1.0)
    marks = check(logits, controls)
    assert (marks[0, Mark.IN_BINS] > CAPACITY, marks[0, Mark.COLLECTED]) == (True, 0)


def test_where_more_is_kept_than_a_list_holds_its_last_bin_is_collected_alone():
    logits = 2 * torch.randn(1, 12_000, generator=torch.Generator().manual_seed(3))
    controls = controls_of(1, TOP_P=0.999, heat=2.0)
    marks = check(logits, controls)
    assert marks[0, Mark.FIRST_BIN] == marks[0, Mark.LAST_BIN] > 0
    assert marks[0, Mark.COUNT] > marks[0, Mark.COUNT_BEFORE] > CAPACITY


def test_of_rows_together_each_has_its_own_cut():
    logits = made("normal", 4, 3000)
    controls = controls_of(
        4, TOP_P=[0.9, 1, 0.5, 1], TOP_K=[0, 40, 0, 0], MIN_P=[0, 0, 0.1, 0], GREEDY=[0, 0, 1, 0]
    )
    assert check(logits, controls)[:, Mark.IS_CUT].tolist() == [1, 1, 0, 0]
