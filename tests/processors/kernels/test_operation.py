"""Where Triton cannot launch a kernel its reference computes, on the tensors of the GPU."""

import pytest
import torch

from processors.kernels.operations import _on_cuda, why_no_kernels
from tests.sham import CUDA, sham_device


def twice(values):
    return 2 * values


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton runs here")
def test_where_triton_does_not_start_a_warning_says_why_and_the_reference_computes():
    run = _on_cuda(twice, "no_such_module:kernel")
    why_no_kernels.cache_clear()
    with sham_device(), pytest.warns(RuntimeWarning, match="The kernels for this GPU are not used, as"):
        assert run(torch.ones(2).to(CUDA)).tolist() == [2, 2]
