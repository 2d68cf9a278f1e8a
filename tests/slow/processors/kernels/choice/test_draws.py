"""A draw by kernels is the draw of the sampler; each kernel does what it does in PyTorch."""

from itertools import product

import torch

from processors.kernels.choice.choose_rows import all_facts_torch, draw_listed_torch, row_facts_torch
from processors.kernels.choice.tables import CAPACITY, Control, Fact, Mark, patched
from processors.sampler import EMPTY, NON_FINITE, gumbel_max
from processors.stages.scale import cool_
from processors.stages.shared import LOWEST
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, KINDS, SHAPES, controls_of, made, patches_of

HOME = "processors.kernels.choice"


FULL = (all_facts_torch, draw_listed_torch)


MARKS = [mark for mark in Mark if mark not in (Mark.FROM, Mark.MIN_P_LEAST)]


def kernels():
    return (
        interpreted(f"{HOME}.facts_triton", "all_facts_triton"),
        interpreted(f"{HOME}.listed_triton", "draw_listed_triton"),
    )


def drawn(logits, controls, functions=FULL, patches=None):
    """The tokens of a draw without truncation, and the facts and marks that led to them."""
    find_facts, draw = functions
    seeds, positions = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3
    facts, levels, marks, tokens = find_facts(logits, controls, False, patches)
    lists = torch.zeros(len(logits), 2, CAPACITY, dtype=torch.int64)
    draw(logits, controls, levels, facts, marks, lists, seeds, positions, tokens, False, patches)
    return tokens, facts, marks


def expected(logits, controls):
    """The tokens of the stages and the sampler."""
    seeds, positions = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3
    heat = controls[:, Control.HEAT_DRAW, None].float()
    cool = cool_(
        logits.clone(), logits.amax(1, keepdim=True).clamp(min=LOWEST), torch.where(heat > 0, heat, 1)
    )
    found = gumbel_max(torch.where(heat > 0, cool, logits), seeds, positions)
    return torch.where(controls[:, Control.GREEDY] > 0, logits.argmax(1), found)


def test_tokens_are_those_of_the_sampler():
    for kind, shape in product(KINDS, (*SHAPES, (40, 700), (2, 33_000))):
        logits = made(kind, *shape)
        logits[:, 0] = logits[:, 0].clamp(min=-1e30)  # one is left
        heats = torch.tensor([0.8, 0, 50])[torch.arange(len(logits)) % 3]
        controls = controls_of(len(logits), heat=heats, GREEDY=torch.arange(len(logits)) % 4 == 3)
        assert torch.equal(drawn(logits, controls)[0], expected(logits, controls)), (kind, shape)


def test_the_kernels_agree_on_each_kind_of_logits():
    for kind in KINDS:
        check(kind, (2, 513))


def check(kind, shape):
    """The kernels draw and find what the references do, by noise, without a temperature and greedily."""
    logits = made(kind, *shape)
    rows = len(logits)
    for controls in (controls_of(rows), controls_of(rows, heat=0), controls_of(rows, GREEDY=1)):
        tokens, facts, marks = drawn(logits, controls, kernels())
        same_tokens, same_facts, same_marks = drawn(logits, controls)
        assert torch.equal(tokens, same_tokens), (kind, shape)
        assert torch.equal(marks, same_marks), (kind, shape)
        assert torch.equal(facts[:, Fact.TOP], same_facts[:, Fact.TOP]), (kind, shape)
        assert torch.allclose(facts, same_facts, rtol=1e-5), (kind, shape)


def test_a_draw_reads_logits_with_their_patches():
    for shape in ((3, 31), (2, 700), (3, 5000)):
        logits = made("normal", *shape)
        patches, greedy = patches_of(logits), torch.arange(len(logits)) == 1
        for controls in (controls_of(len(logits)), controls_of(len(logits), heat=0, GREEDY=greedy)):
            tokens = expected(patched(logits, patches), controls)
            for functions in (FULL, kernels()):
                assert torch.equal(drawn(logits, controls, functions, patches)[0], tokens), shape


def test_failed_rows_are_told_apart():
    logits = torch.randn(4, 5000)
    logits[0], logits[1, 7], logits[2, 7] = -INF, torch.nan, INF
    for functions in (FULL, kernels()):
        tokens, _, marks = drawn(logits, controls_of(4), functions)
        assert tokens[:3].tolist() == [EMPTY, NON_FINITE, NON_FINITE]
        assert tokens[3] >= 0
        assert marks[:, Mark.FAULT].tolist() == [EMPTY, NON_FINITE, NON_FINITE, 0]


def test_the_first_of_equal_logits_is_the_greedy_one():
    logits = torch.full((1, 3000), -5.0)
    logits[0, [2999, 1700, 1024]] = 2.0
    for functions in (FULL, kernels()):
        assert drawn(logits, controls_of(1, GREEDY=1), functions)[0].tolist() == [1024]


def test_where_a_cut_may_begin_follows_from_the_facts():
    for kind in ("normal", "masked", "huge"):
        logits = made(kind, 3, 5000)
        controls = controls_of(3, TOP_K=[4, 0, 0], TOP_P=[0.9, 0.8, 1], MIN_P=[0, 0, 0.1])
        facts, levels, marks, tokens = kernels()[0](logits, controls, True)
        same = row_facts_torch(logits, facts, controls, True)
        assert torch.allclose(levels, same[0], rtol=1e-6), kind
        assert torch.equal(marks[:, MARKS], same[1][:, MARKS]), kind
        assert torch.allclose(marks.double(), same[1].double(), rtol=1e-6), kind
        assert torch.equal(tokens, same[2]), kind
