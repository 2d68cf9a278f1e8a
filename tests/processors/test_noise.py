"""The NumPy form of the noise is that of processors.rng but for rounding of logarithms."""

import torch

from processors.fused import gumbel_array
from processors.rng import Stream, gumbel, row_key_array, row_keys


def test_keys_are_the_same_and_noise_up_to_rounding():
    seeds = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789])
    positions, ids = torch.arange(6) * 1000, torch.arange(5000)[None]
    keys = row_keys(seeds, positions, Stream.TOKEN)
    found = row_key_array(seeds.numpy(), positions.numpy(), Stream.TOKEN)
    assert found.view("int64").tolist() == keys.tolist()
    noise = torch.from_numpy(gumbel_array(found[:, None], ids.numpy()))
    assert (noise - gumbel(keys[:, None], ids)).abs().max() < 1e-12
