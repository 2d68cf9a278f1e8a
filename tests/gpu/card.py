"""The one condition of the tests in this folder: a CUDA device."""

import pytest
import torch

__all__ = ["ON_A_CARD"]

ON_A_CARD = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
