"""The product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company."""

from collections.abc import Callable
from itertools import product

import torch

from gencli.models.decoder.decoder_layers import routed
from gencli.models.decoder.products.dense_products import ROWS, widened_mxfp4
from tests.models.cases import case
from tests.models.decoder.products.test_grouped import EXPERTS, USED, experts_of, kernel, narrow, noise, twin

Run = Callable[..., torch.Tensor]


def check_rows(shape: tuple[int, int], dtype: torch.dtype, bits: int | None) -> None:
    # Of whole numbers, whose sums are exact: the interpreter adds up by NumPy, in an order of its own.
    weight, logits = noise(EXPERTS, *shape).round(), noise(40, EXPERTS)
    logits[:, 1] = 9.0  # more rows than a tile has
    weights, wide = ([weight.to(dtype)], weight.to(dtype)) if bits is None else narrow(bits, weight)
    given = noise(40, shape[1]).round().to(dtype)
    rows, own = given.double().repeat_interleave(USED, 0), wide.double()[experts_of(logits)]
    exact = (own @ rows[..., None])[..., 0]
    size = (own.abs() @ rows.abs()[..., None])[..., 0]
    for run in (kernel, twin):

        def made_of(first: int, end: int, block: int = ROWS, run: Run = run) -> torch.Tensor:
            _, lists, tiles = routed(logits[first:end], USED, True, block)
            return run(given[first:end], weights, lists, tiles, block, USED)

        whole = made_of(0, 40, 2 * ROWS)  # several tiles of rows in a program
        assert ((whole.double() - exact).abs() <= 2e-3 * size).all()
        for first, end in ((0, 40), (0, 1), (0, 17), (39, 40)):
            made, expected = made_of(first, end), whole[first * USED : end * USED]
            assert torch.equal(made, expected) or bits == 4, (first, end)
            torch.testing.assert_close(made, expected)


def test_a_row_has_the_same_bits_among_any_number_of_rows() -> None:
    check_rows((7, 544), torch.float16, None)
    check_rows((7, 544), torch.float16, 4)


def test_each_expert_has_a_bias_of_its_own() -> None:
    for bits, rows in product([None, 8, 4], [9, 200]):
        with case(bits, rows):
            weight, logits, bias = (
                noise(EXPERTS, 6, 64).half(),
                noise(rows, EXPERTS),
                noise(EXPERTS, 6).half(),
            )
            weights = [weight] if bits is None else narrow(bits, weight)[0]
            weights += [None] * (3 - len(weights))  # type: ignore[list-item]
            given = noise(rows, 64).half()
            block = ROWS if rows == 9 else 3 * ROWS
            _, lists, tiles = routed(logits, USED, True, block)
            for run in (kernel, twin):
                plain, made = (run(given, [*weights, one], lists, tiles, block, USED) for one in (None, bias))
                expected = (plain.float() + bias[experts_of(logits)].float()).half()
                torch.testing.assert_close(made, expected, rtol=2e-3, atol=1e-2)


def test_codes_of_mxfp4_are_the_numbers_that_they_stand_for() -> None:
    for rows in [9, 200]:
        with case(rows):
            some = torch.Generator().manual_seed(3)
            blocks = torch.randint(0, 256, (EXPERTS, 6, 2, 16), generator=some, dtype=torch.uint8)
            scales = torch.randint(118, 130, (EXPERTS, 6, 2), generator=some, dtype=torch.uint8)
            wide = torch.stack([widened_mxfp4(*one) for one in zip(blocks, scales, strict=True)]).half()
            given, block = noise(rows, 64).half(), ROWS if rows == 9 else 3 * ROWS
            _, lists, tiles = routed(noise(rows, EXPERTS), USED, True, block)
            for run in (kernel, twin):
                found, expected = (
                    run(given, weights, lists, tiles, block, USED)
                    for weights in ([blocks.flatten(2), scales], [wide])
                )
                torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-2)
