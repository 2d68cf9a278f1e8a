"""The kernels of norms and residual sums have the values of the decoder's own code.

The kernels that choose experts, and add up what these return, have the values of their references.
"""

from itertools import product

import torch

from gencli.models.decoder.decoder_layers import mixed, num_entries, routed
from gencli.models.decoder.kernels.layer_kernels import Norm
from tests.interpreted import interpreted
from tests.models.cases import case

MODULE = "gencli.models.decoder.kernels.norm_triton"
FLOAT, HALF = torch.float32, torch.float16
# Triton's interpreter cuts bfloat16 off in place of rounding it, so that these are the formats to compare.
FORMATS = [(FLOAT, FLOAT), (HALF, HALF), (HALF, FLOAT)]
CLOSE = {FLOAT: {"rtol": 1e-6, "atol": 1e-6}, HALF: {"rtol": 0.0, "atol": 0.0}}


def given(dtype, weights, width=100):
    noise = torch.Generator().manual_seed(1)
    states, more = (torch.randn(3, width, generator=noise).to(dtype) for _ in range(2))
    return states, more, *(Norm(torch.randn(width, generator=noise).to(weights), eps) for eps in (1e-5, 1e-6))


def test_a_row_has_the_same_bits_alone():
    states, _, norm, _ = given(FLOAT, FLOAT)
    kernel = interpreted(MODULE, "normed")
    assert torch.equal(kernel(states, norm.weight, norm.eps)[1:2], kernel(states[1:2], norm.weight, norm.eps))


KERNEL = "gencli.models.decoder.kernels.routing_triton"
ROUTING_FORMATS = [torch.float32, torch.float16]  # the interpreter has no bfloat16
# Rows, experts, those that a row uses, pairs of a tile: several turns, one expert, all experts of a row.
SIZES = [(1, 8, 2, 32), (150, 5, 2, 32), (40, 128, 8, 4), (9, 3, 3, 2), (5, 1, 1, 32), (70, 6, 1, 64)]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def lists_of(lists: torch.Tensor, tiles: torch.Tensor) -> list[tuple[int, list[int]]]:
    """The pairs of each tile that is needed, with their expert."""
    return [(e, lists[e, first : first + count].tolist()) for e, first, count in tiles.tolist() if count]


def test_a_row_is_in_the_lists_of_its_best_experts() -> None:
    for size in SIZES:
        with case(size):
            rows, experts, used, block = size
            logits = noise(rows, experts)
            shares, lists, tiles = routed(logits, used, True, block)
            held = lists_of(lists, tiles)
            assert [expert for expert, _ in held] == sorted(expert for expert, _ in held)
            assert all(0 < len(pairs) <= block for _, pairs in held)
            chosen = {pair: expert for expert, pairs in held for pair in pairs}
            assert sorted(chosen) == list(range(rows * used))
            slots = torch.tensor([chosen[pair] for pair in range(rows * used)]).view(rows, used)
            best = logits.softmax(-1).topk(used)
            assert torch.equal(slots, best.indices.sort(-1).values)
            torch.testing.assert_close(shares, logits.gather(1, slots).softmax(-1))


def test_the_number_of_tiles_holds_any_choice() -> None:
    generator = torch.Generator().manual_seed(1)
    for rows, experts, used, block in [*SIZES, (64, 8, 2, 32), (33, 4, 1, 32)]:
        for spread in (0.0, 0.1, 100.0):
            logits = spread * torch.randn(rows, experts, generator=generator) + torch.arange(experts)
            _, _, tiles = routed(logits, used, False, block)
            assert len(tiles) == num_entries(rows, experts, used, block)
            assert int(tiles[:, 2].sum()) == rows * used


def test_numbers_that_are_none_choose_an_expert_too() -> None:
    logits = noise(3, 8)
    logits[1] = torch.nan
    logits[2, 3] = -torch.inf
    for run in (interpreted(KERNEL, "routed"), routed):
        _, lists, tiles = run(logits, 2, True, 4)
        pairs = [pair for _, some in lists_of(lists, tiles) for pair in some]
        assert sorted(pairs) == list(range(6))


def test_pairs_are_added_up_in_their_order() -> None:
    for dtype, (rows, used, width) in product(ROUTING_FORMATS, [(1, 8, 40), (3, 2, 1030), (2, 1, 7)]):
        with case(dtype, rows, used, width):
            made, shares = noise(rows * used, width).to(dtype), noise(rows, used).softmax(-1).to(dtype)
            found, expected = interpreted(KERNEL, "mixed")(made, shares), mixed(made, shares)
            assert torch.equal(found, expected)
            exact = (made.double().view(rows, used, width) * shares.double()[..., None]).sum(1)
            torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)


def test_without_rows_nothing_is_chosen() -> None:
    for run in (interpreted(KERNEL, "routed"), routed):
        shares, lists, tiles = run(torch.empty(0, 4), 2, True, 32)
        assert (shares.shape, lists.shape, tiles.shape) == ((0, 2), (4, 0), (0, 3))
