"""The kernels find the same cut by lists, histograms and halving as PyTorch by sorting, bit for bit."""

import torch

from processors.kernels.choice.choose_rows import all_facts_torch, draw_listed_torch, find_window_torch, kept
from processors.kernels.choice.tables import CAPACITY, OPEN, Mark, patched
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import controls_of, made, patches_of

EXACT = [mark for mark in Mark if mark != Mark.LEAST]  # which may be any order between two logits


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


def chosen(logits, controls, patches=None, *, kernels=False):
    """What each of the three steps leaves: marks, tokens, the orders that are listed, in order, and bins."""
    draw, find = draw_listed_torch, find_window_torch
    if kernels:
        draw = interpreted(f"{HOME}.listed_triton", "draw_listed_triton")
        find = interpreted(f"{HOME}.bins_triton", "find_window_triton")
    facts, levels, marks, tokens = all_facts_torch(logits, controls, True, patches)
    lists = torch.zeros(len(logits), 2, CAPACITY, dtype=torch.int64)
    tables = logits, controls, levels, facts, marks, lists
    draws = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3, tokens
    for step in (lambda: draw(*tables, *draws, False, patches), lambda: find(*tables, tokens, patches),
                 lambda: draw(*tables, *draws, True, patches)):  # fmt: skip
        step()
        held = torch.where(torch.arange(CAPACITY) < marks[:, Mark.COLLECTED, None], lists[:, 0], 0)
        bins = lists[:, 1] * (tokens == OPEN)[:, None]
        left = kept(patched(logits, patches), controls, levels, marks)
        yield marks.clone(), tokens.clone(), held.sort(1).values, bins, left


def check(logits, controls, patches=None, case=None):
    """Return the marks after each step, which both have."""
    given = logits, controls, patches
    steps = zip(chosen(*given), chosen(*given, kernels=True), strict=True)
    found = []
    for (marks, *others), (same_marks, *same_others) in steps:
        assert torch.equal(same_marks[:, EXACT], marks[:, EXACT]), case
        assert all(map(torch.equal, same_others, others)), case
        found.append(marks)
    return found


def test_the_kernels_agree_on_logits_with_patches():
    for cut in ("k", "all"):
        logits = made("normal", 2, 600)
        check(logits, controls_of(2, **CUTS[cut]), patches_of(logits), cut)


def test_the_kernels_agree_on_rows_of_some_widths():
    for cut, shape in (("all", (1, 1)), ("p first", (3, 31)), ("flat", (2, 513))):
        check(made("whole numbers", *shape), controls_of(shape[0], **CUTS[cut]), case=(cut, shape))


def test_where_more_is_kept_than_a_list_holds_its_last_bin_is_collected_alone():
    logits = 2 * torch.randn(1, 12_000, generator=torch.Generator().manual_seed(3))
    marks = check(logits, controls_of(1, TOP_P=0.999, heat=2.0))[-1]
    assert marks[0, Mark.FIRST_BIN] == marks[0, Mark.LAST_BIN] > 0
    assert marks[0, Mark.COUNT] > marks[0, Mark.COUNT_BEFORE] > CAPACITY


def test_a_few_of_many_candidates_are_kept():
    logits = torch.randn(1, 9000, generator=torch.Generator().manual_seed(3))
    first, _, last = check(logits, controls_of(1, TOP_P=0.5, heat=0.9))
    assert (first[0, Mark.COLLECTED], first[0, Mark.COUNT]) == (0, 9000)
    assert last[0, Mark.COUNT] < CAPACITY


def test_of_rows_together_each_has_its_own_cut():
    logits = made("normal", 4, 3000)
    controls = controls_of(
        4, TOP_P=[0.9, 1, 0.5, 1], TOP_K=[0, 40, 0, 0], MIN_P=[0, 0, 0.1, 0], GREEDY=[0, 0, 1, 0]
    )
    assert check(logits, controls)[-1][:, Mark.IS_CUT].tolist() == [1, 1, 0, 0]
