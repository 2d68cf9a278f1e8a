"""Hashes and bits are those of transformers."""

import torch

from processors.rng import accumulated
from tests.processors.reference.draw_twins import hashed


def test_the_hash_has_the_known_values():
    assert hashed(1, [5, 6, 7, 8]) == -8156970836831274249
    assert hashed(1, [5, 6, 7, 8, 9, 654]) == -3438648266265569500
    assert int(accumulated(torch.tensor(1), torch.tensor(5))) == hashed(1, [5])
