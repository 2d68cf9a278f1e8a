"""Experts in one stack have the values of experts that are computed one after the other."""

import pytest
import torch

from gencli.models.decoder.layers import Experts
from gencli.models.decoder.products.maker import KernelOptions, can_stack
from gencli.models.decoder.runner import DecoderRunner
from gencli.models.decoder.stacked_experts import StackedExperts
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_values_are_those_of_the_loop_over_experts(kind: str) -> None:
    plain, stacked = (native_decoder(build_native(kind), stacks_experts=one) for one in (False, True))
    for rows in (0, 1, 9, 200):
        states = torch.randn(rows, plain.spec.hidden, generator=torch.Generator().manual_seed(rows))
        for layer, other in zip(plain.layers, stacked.layers, strict=True):
            assert isinstance(layer.mlp, Experts)
            assert isinstance(other.mlp, StackedExperts)
            torch.testing.assert_close(other.mlp(states), layer.mlp(states), rtol=1e-4, atol=1e-5)


def test_the_host_looks_up_experts_where_they_are_not_stacked() -> None:
    assert not can_stack(torch.float32, CPU, KernelOptions())
    with sham_device():
        ahead = [
            DecoderRunner(native_decoder(build_native("mixtral"), CUDA, stacks_experts=one)).spec
            for one in (False, True)
        ]
    assert [spec.can_run_ahead for spec in ahead] == [False, True]
    assert [spec.no_graphs for spec in ahead] == [
        "the host looks up which experts a token uses",
        "`cuda_graphs` is off",
    ]


def test_a_kernel_by_name_keeps_them_apart() -> None:
    pytest.importorskip("triton")
    with sham_device():
        assert can_stack(torch.bfloat16, CUDA, KernelOptions())
        assert not can_stack(torch.bfloat16, CUDA, KernelOptions(kernel="plain"))
