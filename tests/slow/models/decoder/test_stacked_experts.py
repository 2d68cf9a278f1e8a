"""Experts in one stack have the values of experts that are computed one after the other."""

import pytest
import torch

from gencli.models.decoder.decoder_layers import Experts, StackedExperts
from tests.models.native import native_decoder
from tests.models.tiny_models import build_native


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_values_are_those_of_the_loop_over_experts(kind: str) -> None:
    plain, stacked = (native_decoder(build_native(kind), stacks_experts=one) for one in (False, True))
    for rows in (0, 1, 9, 200):
        states = torch.randn(rows, plain.spec.hidden, generator=torch.Generator().manual_seed(rows))
        for layer, other in zip(plain.layers, stacked.layers, strict=True):
            assert isinstance(layer.mlp, Experts)
            assert isinstance(other.mlp, StackedExperts)
            torch.testing.assert_close(other.mlp(states), layer.mlp(states), rtol=1e-4, atol=1e-5)
