"""The product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company."""

import torch

from gencli.models.decoder.decoder_layers import routed
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import (
    ROWS,
    SPLIT_PROGRAMS,
    GroupedProduct,
    grouped_product_torch,
)
from tests.interpreted import interpreted

KERNEL = "gencli.models.decoder.products.grouped_triton"


EXPERTS, USED = 5, 2


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def narrow(bits: int, weight: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Codes, scales and zeros of weights [E, out, in], and the weights that they stand for."""
    kind = Int8Weights if bits == 8 else Int4Weights
    flat = weight.flatten(0, 1)
    made = kind.of((flat.shape[0], flat.shape[1]), [flat])
    if isinstance(made, Int8Weights):
        wide = made.rows(torch.arange(len(flat)))
    else:
        steps = (made.unpacked(slice(None)) - 8).unflatten(1, (-1, 32))
        wide = (steps * made.scales[..., None].float() + made.zeros[..., None].float()).flatten(1)
    parts = [made.tensors[0], *(part.float() for part in made.tensors[1:])]
    return [part.unflatten(0, weight.shape[:2]) for part in parts], wide.view(weight.shape)


def kernel(given: torch.Tensor, weights: list[torch.Tensor], *rest: object) -> torch.Tensor:
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
    for run in (kernel, twin):
        torch.testing.assert_close(run(given, [weight], lists, tiles, ROWS, 1), expected)


def test_an_expert_without_rows_is_not_read() -> None:
    weight, logits = noise(EXPERTS, 6, 40), noise(9, EXPERTS)
    logits[:, 3] = -9.0
    weight[3] = torch.nan
    _, lists, tiles = routed(logits, USED, True, ROWS)
    assert 3 not in tiles[tiles[:, 2] > 0, 0]
    for run in (kernel, twin):
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
