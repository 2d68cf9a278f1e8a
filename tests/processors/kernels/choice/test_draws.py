"""A draw by kernels is the draw of the sampler; each kernel does what it does in PyTorch."""

import pytest
import torch

from processors.kernels.choice.draws import draw_ids_torch, survey_torch
from processors.kernels.choice.facts import block_facts_torch
from processors.kernels.choice.parts import Control, Fact, Mark
from processors.kernels.choice.rows import row_facts_torch
from processors.sampler import EMPTY, NON_FINITE, gumbel_max
from processors.stages.temperature import cool_
from processors.stages.tokens import LOWEST
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, KINDS, SHAPES, controls_of, made

HOME = "processors.kernels.choice"
FULL = (block_facts_torch, row_facts_torch, survey_torch, draw_ids_torch)


def kernels():
    names = (
        "facts_triton:block_facts",
        "rows_triton:row_facts",
        "draws_triton:survey",
        "draws_triton:draw_ids",
    )
    parts = (name.split(":") for name in names)
    return tuple(interpreted(f"{HOME}.{module}", f"{function}_triton") for module, function in parts)


def drawn(logits, controls, functions=FULL):
    """The tokens of a draw without truncation, and the facts and marks that led to them."""
    find_facts, find_rows, survey, draw = functions
    seeds, positions = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3
    facts = find_facts(logits, controls)
    levels, marks, _ = find_rows(facts, controls, False)
    ids = survey(logits, controls, levels, marks, facts)
    return draw(logits, controls, levels, marks, facts, ids, seeds, positions), facts, marks


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
