"""Products with weights in the format of the activations.

The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler. The
product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company.
"""

from collections.abc import Callable
from itertools import product

import pytest
import torch

from gencli.models.decoder.decoder_layers import routed
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import (
    MAX_SPLIT_ROWS,
    ROWS,
    SPLIT_PROGRAMS,
    FixedProduct,
    GroupedProduct,
    PackedProduct,
    PlainProduct,
    RowPackedProduct,
    can_pack,
    grouped_product_torch,
    num_parts,
    num_tiles,
)
from tests.interpreted import interpreted
from tests.models.cases import case

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33)]
FORMATS = (torch.float32, torch.bfloat16)


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) / 8).to(dtype)


def test_a_product_is_that_of_the_weights() -> None:
    for kernel, shape, dtype in product((PlainProduct, PackedProduct, RowPackedProduct), SHAPES, FORMATS):
        if kernel is PlainProduct or can_pack(dtype):
            weight, bias, given = matrix(shape, dtype), matrix(shape[:1], dtype), matrix((5, shape[1]), dtype)
            expected = given.double() @ weight.double().T + bias.double()
            made = kernel(weight, bias)
            with case(kernel, shape, dtype):
                torch.testing.assert_close(made(given).double(), expected, rtol=2e-2, atol=2e-2)
                assert made.nbytes == weight.nbytes


LAUNCH = "gencli.models.decoder.products.fixed_launch"


def fixed_matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def kernel(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product by the interpreted kernel; its counters are zero again behind each call."""
    launch = interpreted(LAUNCH, "fixed_product_triton")
    arrived = torch.zeros(MAX_SPLIT_ROWS // ROWS * num_tiles(len(weight)), dtype=torch.int32)

    def run(given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = launch(given, weight, None, None, bias, arrived)
        assert not arrived.any()
        return made

    return run


def test_without_a_bias_and_without_rows() -> None:
    weight = fixed_matrix((5, 40), torch.float32)
    product = kernel(weight, None)
    torch.testing.assert_close(product(torch.eye(40)), weight.T)
    assert product(torch.empty(0, 40)).shape == (0, 5)


def test_an_absent_row_changes_no_row_even_beside_infinity() -> None:
    for kind in ["kernel", "twin"]:
        with case(kind):
            weight, given = fixed_matrix((4, 40), torch.float32), fixed_matrix((3, 40), torch.float32)
            given[1] = torch.inf
            run = kernel(weight, None) if kind == "kernel" else FixedProduct(weight)
            made = run(given)
            assert torch.equal(made[[0, 2]].isfinite(), torch.ones(2, 4, dtype=torch.bool))
            assert not made[1].isfinite().any()


def test_few_outputs_are_added_up_in_parts() -> None:
    sizes = {
        (128256, 2048): 1,
        (16384, 2048): 1,
        (2048, 8192): 8,
        (4096, 4096): 4,
        (896, 896): 3,
        (64, 64): 1,
    }
    assert {size: num_parts(*size) for size in sizes} == sizes
    narrow = {(128256, 2048): 1, (16384, 2048): 2, (3072, 2048): 4, (4096, 4096): 4, (896, 896): 3}
    assert {size: num_parts(*size, bits=4) for size in narrow} == narrow


def test_a_kernel_does_not_know_the_number_of_rows() -> None:
    pytest.importorskip("triton")
    from gencli.models.decoder.products import fixed_triton

    assert all(
        one.do_not_specialize == ["num_rows", "list_size"] for one in (fixed_triton._few, fixed_triton._many)
    )


KERNEL = "gencli.models.decoder.products.grouped_triton"
EXPERTS, USED = 5, 2


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def narrow(bits: int, weight: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Codes, scales and zeros of weights [E, out, in], and the weights that they stand for."""
    flat = weight.flatten(0, 1)
    size = (flat.shape[0], flat.shape[1])
    made = Int8Weights.of(size, [flat]).by_row() if bits == 8 else Int4Weights.of(size, [flat])
    if isinstance(made, Int8Weights):
        wide = made.rows(torch.arange(len(flat)))
    else:
        steps = (made.unpacked(slice(None)).int() - 8).unflatten(1, (-1, 32))
        wide = (steps * made.scales[..., None].float() + made.zeros[..., None].float()).flatten(1)
    parts = [made.tensors[0], *(part.float() for part in made.tensors[1:])]
    return [part.unflatten(0, weight.shape[:2]) for part in parts], wide.view(weight.shape)


def grouped_kernel(given: torch.Tensor, weights: list[torch.Tensor], *rest: object) -> torch.Tensor:
    """The product by the interpreted kernel; its counters are zero again."""
    arrived = torch.zeros(SPLIT_PROGRAMS, dtype=torch.int32)
    padded = [*weights, *[None] * (4 - len(weights))]
    made: torch.Tensor = interpreted(KERNEL, "grouped_product_triton")(given, *padded, *rest, arrived)
    assert not arrived.any()
    return made


def twin(given: torch.Tensor, weights: list[torch.Tensor], *rest: object) -> torch.Tensor:
    padded = [*weights, *[None] * (4 - len(weights))]
    return grouped_product_torch(given, *padded, *rest, torch.empty(0))


def experts_of(logits: torch.Tensor) -> torch.Tensor:
    """The expert of each pair."""
    return logits.topk(USED).indices.sort(-1).values.flatten()


def test_each_pair_may_have_a_row_of_its_own() -> None:
    weight, logits = noise(EXPERTS, 6, 40), noise(9, EXPERTS)
    given = noise(9 * USED, 40)
    _, lists, tiles = routed(logits, USED, True, ROWS)
    expected = (weight[experts_of(logits)] @ given[..., None])[..., 0]
    for run in (grouped_kernel, twin):
        torch.testing.assert_close(run(given, [weight], lists, tiles, ROWS, 1), expected)


def test_an_expert_without_rows_is_not_read() -> None:
    weight, logits = noise(EXPERTS, 6, 40), noise(9, EXPERTS)
    logits[:, 3] = -9.0
    weight[3] = torch.nan
    _, lists, tiles = routed(logits, USED, True, ROWS)
    assert 3 not in tiles[tiles[:, 2] > 0, 0]
    for run in (grouped_kernel, twin):
        assert run(noise(9, 40), [weight], lists, tiles, ROWS, USED).isfinite().all()


def test_programs_take_several_tiles_where_experts_have_them() -> None:
    weight = torch.empty(8, 16, 32, dtype=torch.bfloat16)
    blocks = {pairs: GroupedProduct(weight).rows_of_tile(pairs) for pairs in (1, 511, 512, 4096)}
    assert blocks == {1: 32, 511: 32, 512: 128, 4096: 128}
    assert GroupedProduct(weight.float()).rows_of_tile(4096) == 64


def test_bytes_are_those_of_all_parts() -> None:
    assert GroupedProduct(torch.empty(2, 3, 32)).nbytes == 2 * 3 * 32 * 4
    weights, _ = narrow(8, noise(2, 3, 32))
    assert GroupedProduct(*weights).nbytes == 2 * 3 * (32 + 4)
