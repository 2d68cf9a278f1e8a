"""Numbers on a CUDA device are those of the CPU; skipped where there is none."""

from itertools import product

import torch

from gencli.models.decoder.products.coded_weights import Int8Weights
from gencli.models.decoder.products.dense_products import FixedProduct, Float32Head, PlainProduct
from gencli.models.decoder.products.product_maker import FixedInt8Product
from processors.rng import Stream, row_keys, token_hash
from processors.sampler import gumbel_max, inverse_cdf
from tests.gpu.card import ON_A_CARD
from tests.processors.kernels.drafts import MANY, case

pytestmark = ON_A_CARD


def test_the_hash_has_the_same_bits():
    seeds, positions, ids = torch.arange(64), torch.arange(64) * 7, torch.arange(5000)
    here = token_hash(row_keys(seeds, positions, Stream.TOKEN)[:, None], ids)
    there = token_hash(row_keys(seeds.cuda(), positions.cuda(), Stream.TOKEN)[:, None], ids.cuda())
    assert torch.equal(here, there.cpu())


def test_draws_agree():
    for draw, survivors in product((gumbel_max, inverse_cdf), (40, 30_000)):
        logits = torch.randn(32, 50_000, generator=torch.Generator().manual_seed(0))
        logits[:, survivors:] = -torch.inf
        seeds, positions = torch.arange(32), torch.arange(32)
        there = draw(logits.cuda(), seeds.cuda(), positions.cuda())
        assert torch.equal(draw(logits, seeds, positions), there.cpu()), (draw, survivors)


def test_a_vocabulary_projection_of_16_bits_has_float32_sums():
    codes = torch.randint(-127, 128, (3000, 512), dtype=torch.int8)
    eight = Int8Weights(codes, torch.rand(3000))
    for dtype, rows in product((torch.bfloat16, torch.float16), (1, 40, 200)):
        weight, given = torch.randn(3000, 512).to(dtype), torch.randn(rows, 512).to(dtype)
        wide = [weight.double(), weight.double(), codes.double() * eight.scales.double()[:, None]]
        made = [
            PlainProduct(weight.cuda()),
            FixedProduct(weight.cuda()),
            FixedInt8Product(Int8Weights(codes.cuda(), eight.scales.cuda())),
        ]
        for one, numbers in zip(made, wide, strict=True):
            found, expected = Float32Head(one)(given.cuda()).cpu(), given.double() @ numbers.T
            assert found.dtype == torch.float32
            assert (found - expected).norm() < 1e-5 * expected.norm(), (one.kernel, dtype, rows)


def test_drafts_are_decided_alike_again_and_again():
    for width in (600, 40_000, 128_256):
        given = case(0, width, MANY * 6)
        there = [one if one is None else one.cuda() for one in given]
        here = torch.ops.gencli.rejection(*given)
        for _ in range(50):  # who ends last differs from launch to launch
            found = torch.ops.gencli.rejection(*there)
            assert [one.tolist() for one in found] == [one.tolist() for one in here], width
