"""Kernels on a CUDA device: narrow, uneven and misaligned rows, and more than 2^31 numbers."""

from itertools import product

import pytest
import torch

from gencli.models.decoder.kernels.attention import attend_rows
from processors.kernels.choice.choose_rows import Given, all_facts, choose
from processors.kernels.operations import apply_bitmask, token_probability
from tests.gpu.card import ON_A_CARD
from tests.processors.kernels.choice.cases import controls_of, made
from tests.processors.kernels.drafts import MANY, case

pytestmark = ON_A_CARD
WIDTHS = (1, 31, 50_257, 128_256)
CUTS = {
    "greedy": {"GREEDY": 1},
    "draw": {},
    "cut": {"MIN_P": 0.01, "TOP_K": 40, "TOP_P": 0.95},
}
MANY_ROWS, WIDE = 16_750, 128_256  # more than 2^31 numbers


def moved(values, shift=0):
    """The values on the card, whose memory begins `shift` numbers behind an aligned address."""
    room = torch.empty(values.numel() + shift, dtype=values.dtype, device="cuda")
    return room[shift:].view(values.shape).copy_(values)


def test_tokens_are_those_of_the_reference_wherever_the_logits_lie():
    for shift, kind, width in product((0, 1, 3), CUTS, WIDTHS):
        logits, controls, ids = made("normal", 3, width), controls_of(3, **CUTS[kind]), torch.arange(3)
        expected = choose(Given(logits.clone(), controls, ids, ids), kind)
        there = Given(moved(logits, shift), *(one.cuda() for one in (controls, ids, ids)))
        assert torch.equal(choose(there, kind).cpu(), expected), (shift, kind, width)


def test_masks_and_probabilities_are_those_of_the_cpu():
    for shift, width in product((0, 1), WIDTHS):
        logits, ids = made("normal", 3, width), torch.zeros(3, dtype=torch.int64)
        masks = torch.randint(-(2**31), 2**31 - 1, (3, -(-width // 32)), dtype=torch.int32)
        there = moved(logits, shift)
        torch.testing.assert_close(token_probability(there, ids.cuda()).cpu(), token_probability(logits, ids))
        masked = apply_bitmask(there, moved(masks, shift)).cpu()
        assert torch.equal(masked, apply_bitmask(logits, masks)), (shift, width)


def test_drafts_are_decided_alike_wherever_the_rows_lie():
    for shift, width in product((0, 1), (1, 31, 50_257)):
        given = case(1, width, MANY)
        there = [None if one is None else one.cuda() for one in given]
        there[0] = moved(given[0], shift)
        found, expected = torch.ops.gencli.rejection(*there), torch.ops.gencli.rejection(*given)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected], (shift, width)


def needs(size):
    """Skip the test where the card has less free memory, in bytes."""
    if torch.cuda.mem_get_info()[0] < size:
        pytest.skip("the card has too little memory")


def test_the_last_of_more_than_2_31_logits_are_read():
    needs(6 << 30)
    logits = torch.zeros(MANY_ROWS, WIDE, dtype=torch.bfloat16, device="cuda")
    logits[-1].normal_()
    controls = controls_of(1).cuda().expand(MANY_ROWS, -1).contiguous()
    found, *_ = all_facts(logits, controls, False)
    alone, *_ = all_facts(logits[-1:].clone(), controls[:1], False)
    assert torch.equal(found[-1:], alone)


def test_the_last_row_of_more_than_2_31_keys_is_read():
    needs(6 << 30)
    rows, heads, capacity, width = 65, 16, 16_384, 128
    held = torch.zeros(rows, capacity, heads, width, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
    held[-1, :, -256:].normal_()
    queries = torch.randn(1, heads, width, device="cuda").bfloat16()
    at, options = torch.tensor([capacity - 1], device="cuda"), {"window": None, "scale": 0.1, "cap": None}
    found = attend_rows(queries, held, torch.tensor([rows - 1], device="cuda"), at, capacity, **options)
    alone = attend_rows(queries, held[-1:].clone(), torch.zeros_like(at), at, capacity, **options)
    assert found.abs().sum() > 0
    assert torch.equal(found, alone)
