"""The random numbers are the published ones of Philox, and vLLM's for key, context and token."""

import math

import pytest
import torch

from processors.rng import (
    LARGEST_NOISE,
    SMALLEST_NOISE,
    derived_key,
    gumbel_of,
    philox,
    signed,
    state_of,
    uniforms,
)
from tests.processors.reference.draw_twins import philox_uniform


def numbers(key, context, ids):
    return uniforms(
        state_of(torch.tensor([signed(key)]), torch.tensor([context])), torch.tensor(ids)
    ).tolist()


def test_the_block_cipher_has_the_known_answer():
    zero = torch.zeros(1, dtype=torch.int64)
    words = [int(word) for word in philox((zero,) * 4, (zero, zero))]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123, kat_vectors


# Computed apart in float64 from the formula of vllm/v1/watermarking/prfs/philox.py.
def test_numbers_are_those_of_vllm():
    for key, context, ids, expected in [
        (42, [-1] * 4, [0, 1, 2, 3], [0.977286042137, 0.00663197001028, 0.881841726193, 0.499613612913]),
        (2**40 + 7, [10, 11, 12, 13, 14], [0, 5, 50256], [0.0756693437297, 0.221637176178, 0.799308371585]),
    ]:
        found = numbers(key, context, ids)
        assert found == pytest.approx(expected, abs=1e-7), key
        assert found == pytest.approx([philox_uniform(key, context, token) for token in ids], abs=1e-7), key
        assert found == torch.tensor(found).double().tolist(), "vLLM's numbers are float32"


def test_noise_is_within_its_bounds():
    largest, smallest = 2**24 / (2**24 + 1), 1 / (2**24 + 1)
    noise = gumbel_of(torch.tensor([largest, smallest]).double()).tolist()
    assert SMALLEST_NOISE < noise[1] < noise[0] < LARGEST_NOISE


def test_two_keys_are_made_of_one():
    # sha256 of the name and the eight bytes of the key, the first eight bytes.
    assert derived_key(0, "key_a") != derived_key(0, "key_b") != derived_key(1, "key_b")
    assert math.log2(derived_key(2**64 - 1, "key_a")) < 64
