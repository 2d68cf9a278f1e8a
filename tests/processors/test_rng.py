"""The hash is a promise: a change of any golden value changes the text of everybody's seeds."""

import pytest
import torch

from processors.rng import (
    Stream,
    derive,
    few_gumbel,
    gumbel,
    mix,
    row_keys,
    signed,
    stream_key,
    token_hash,
    uniform,
)

GOLDEN_MIX = ["0x0", "0x5692161d100b05e5", "0x25c26ea579cea98a"]
GOLDEN_DERIVE = [12035550249420947055, 12935080325729570654, 11321479326505383773]
GOLDEN_HASH = [[5197578548964807871, -1990401014790517080], [-6841218057082846506, -2247995076686424938]]
GOLDEN_GUMBEL = 0.9761640794367684


def test_mix_has_its_golden_values():
    assert [hex(mix(n)) for n in (0, 1, 2**63)] == GOLDEN_MIX


def test_integers_and_tensors_mix_to_the_same_bits():
    values = [0, 1, 12345, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
    mixed = mix(torch.tensor([signed(v) for v in values]))
    assert mixed.tolist() == [signed(mix(v)) for v in values]


def test_derived_seeds_have_their_golden_values():
    assert [derive(0, 0), derive(0, 1), derive(7, "row-1")] == GOLDEN_DERIVE


def test_a_text_key_is_not_the_number_it_spells():
    assert derive(0, "0") != derive(0, 0)


def test_token_hash_has_its_golden_values():
    keys = row_keys(torch.tensor([0, 42]), torch.tensor([0, 7]), Stream.TOKEN)
    assert token_hash(keys[:, None], torch.tensor([0, 151935])).tolist() == GOLDEN_HASH


def test_keys_on_a_host_are_those_of_pytorch():
    seeds, positions = torch.tensor([0, -3, 2**62 + 1, -(2**63), 2**63 - 1]), torch.arange(5) * 1_000_003
    on_host = row_keys(seeds, positions, Stream.BLOCK)
    assert torch.equal(on_host[:, None], row_keys(seeds[:, None], positions[:, None], Stream.BLOCK))


def test_gumbel_noise_has_its_golden_value():
    noise = gumbel(torch.tensor([[123]]), torch.tensor([5]))
    torch.testing.assert_close(noise.item(), GOLDEN_GUMBEL, rtol=1e-12, atol=0)


def test_noise_made_on_the_host_is_that_of_tensors():
    for seed in (0, -3, 2**62 + 1):
        ids = [0, 1, 5, 50_000]
        key = row_keys(torch.tensor(seed), torch.tensor(9), Stream.TOKEN)
        expected = gumbel(key, torch.tensor(ids)).tolist()
        assert few_gumbel(seed, Stream.TOKEN, 9, ids) == pytest.approx(expected, rel=1e-12), seed


def test_uniform_stays_strictly_inside_zero_and_one():
    draws = uniform(torch.arange(1000)[:, None], torch.arange(100))
    assert draws.min() > 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005


def test_every_part_of_the_key_changes_the_draw():
    base = row_keys(torch.tensor([1]), torch.tensor([2]), Stream.TOKEN)
    others = [
        row_keys(torch.tensor([2]), torch.tensor([2]), Stream.TOKEN),
        row_keys(torch.tensor([1]), torch.tensor([3]), Stream.TOKEN),
        row_keys(torch.tensor([1]), torch.tensor([2]), Stream.BLOCK),
        row_keys(torch.tensor([1]), torch.tensor([2]), signed(stream_key("my-plugin"))),
    ]
    assert len({key.item() for key in (base, *others)}) == 5
