"""Experts in one stack have the values of experts that are computed one after the other."""

import pytest
import torch

from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.product_maker import KernelOptions, can_stack
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device


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
