"""Attention of single tokens: the reference is PyTorch's attention, the kernels have its values."""

from itertools import product

import pytest
import torch

from gencli.models.decoder.kernels.attention import SPLIT
from tests.models.cases import case
from tests.models.decoder.kernels.test_attention import CASES, FLOAT, HALF, SINKS
from tests.slow.models.decoder.kernels.test_attention import (
    check_chunk,
    check_instructions,
    check_narrower,
    check_values,
    own_compiler_cache,
)


def test_the_kernels_have_the_values_of_the_reference_in_all_shapes():
    for (window, cap), dtype, sinks in product(CASES, (FLOAT, HALF), (None, SINKS)):
        with case(window, cap, dtype, sinks):
            check_values(window, cap, dtype, sinks)
    for formats in product((HALF, torch.float8_e4m3fn, torch.int8), (FLOAT, HALF)):
        with case(*formats):
            check_narrower(*formats)


@pytest.mark.parametrize(
    ("window", "cap", "kv_dtype", "sinks"),
    [
        (None, None, None, None),
        (16, 5.0, None, None),
        (SPLIT, None, torch.float8_e4m3fn, None),
        (None, None, torch.int8, SINKS),
        (16, None, None, SINKS),
    ],
)
def test_a_token_has_the_same_bits_among_the_tokens_of_a_prompt_in_all_shapes(window, cap, kv_dtype, sinks):
    check_chunk(window, cap, kv_dtype, sinks)


@pytest.mark.parametrize("target", [80, 90])
@pytest.mark.parametrize("name", ["bf16, 128", "bf16, 256", "fp32, 128", "bf16 over int8, 128"])
def test_all_builds_of_attention_compute_by_the_same_instructions(name, target, own_compiler_cache):
    check_instructions(name, target)
