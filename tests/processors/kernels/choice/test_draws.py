"""A draw by kernels is the draw of the sampler; each kernel does what it does in PyTorch."""

import pytest
import torch

from processors.kernels.choice.draws import draw_listed_torch
from processors.kernels.choice.parts import CAPACITY, Control, Fact, Mark
from processors.kernels.choice.patches import patched
from processors.kernels.choice.rows import all_facts_torch, row_facts_torch
from processors.sampler import EMPTY, NON_FINITE, gumbel_max
from processors.stages.temperature import cool_
from processors.stages.tokens import LOWEST
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [*SHAPES, (40, 700), (2, 33_000)], ids=str)
def test_tokens_are_those_of_the_sampler(kind, shape):
    logits = made(kind, *shape)
    logits[:, 0] = logits[:, 0].clamp(min=-1e30)  # one is left
    heats, greedy = (
        torch.tensor([0.8, 0, 50])[torch.arange(len(logits)) % 3],
        torch.arange(len(logits)) % 4 == 3,
    )
    controls = controls_of(len(logits), heat=heats, GREEDY=greedy)
    assert torch.equal(drawn(logits, controls)[0], expected(logits, controls))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernels_agree(kind, shape):
    logits = made(kind, *shape)
    for controls in (
        controls_of(len(logits)),
        controls_of(len(logits), heat=0),
        controls_of(len(logits), GREEDY=1),
    ):
        tokens, facts, marks = drawn(logits, controls, kernels())
        same_tokens, same_facts, same_marks = drawn(logits, controls)
        assert torch.equal(tokens, same_tokens)
        assert torch.equal(marks, same_marks)
        assert torch.equal(facts[:, Fact.TOP], same_facts[:, Fact.TOP])
        assert torch.allclose(facts, same_facts, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 31), (2, 700), (3, 5000)], ids=str)
def test_a_draw_reads_logits_with_their_patches(shape):
    logits = made("normal", *shape)
    patches, greedy = patches_of(logits), torch.arange(len(logits)) == 1
    for controls in (controls_of(len(logits)), controls_of(len(logits), heat=0, GREEDY=greedy)):
        tokens = expected(patched(logits, patches), controls)
        for functions in (FULL, kernels()):
            assert torch.equal(drawn(logits, controls, functions, patches)[0], tokens)


@pytest.mark.parametrize(
    "functions", [pytest.param(lambda: FULL, id="torch"), pytest.param(kernels, id="triton")]
)
def test_failed_rows_are_told_apart(functions):
    logits = torch.randn(4, 5000)
    logits[0], logits[1, 7], logits[2, 7] = -INF, torch.nan, INF
    tokens, _, marks = drawn(logits, controls_of(4), functions())
    assert tokens[:3].tolist() == [EMPTY, NON_FINITE, NON_FINITE]
    assert tokens[3] >= 0
    assert marks[:, Mark.FAULT].tolist() == [EMPTY, NON_FINITE, NON_FINITE, 0]


@pytest.mark.parametrize(
    "functions", [pytest.param(lambda: FULL, id="torch"), pytest.param(kernels, id="triton")]
)
def test_the_first_of_equal_logits_is_the_greedy_one(functions):
    logits = torch.full((1, 3000), -5.0)
    logits[0, [2999, 1700, 1024]] = 2.0
    assert drawn(logits, controls_of(1, GREEDY=1), functions())[0].tolist() == [1024]


@pytest.mark.parametrize("kind", ["normal", "masked", "huge"])
def test_where_a_cut_may_begin_follows_from_the_facts(kind):
    logits = made(kind, 3, 5000)
    controls = controls_of(3, TOP_K=[4, 0, 0], TOP_P=[0.9, 0.8, 1], MIN_P=[0, 0, 0.1])
    facts, levels, marks, tokens = kernels()[0](logits, controls, True)
    same = row_facts_torch(logits, facts, controls, True)
    assert torch.allclose(levels, same[0], rtol=1e-6)
    assert torch.equal(marks[:, MARKS], same[1][:, MARKS])
    assert torch.allclose(marks.double(), same[1].double(), rtol=1e-6)
    assert torch.equal(tokens, same[2])
