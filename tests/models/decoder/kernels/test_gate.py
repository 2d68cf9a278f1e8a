"""The kernel of the gate has the values of the decoder's own code."""

import pytest
import torch

from gencli.models.decoder.activations import ACTIVATIONS
from gencli.models.decoder.kernels.gate import gated
from tests.interpreted import interpreted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values(activation, dtype):
    made = torch.cat([torch.randn(2, 2060), torch.linspace(-9, 9, 2060)[None].expand(2, -1)])
    made[0, :4] = torch.tensor([0.0, torch.inf, torch.nan, -60.0])
    options = activation, 7.0 if activation == "clamped" else 0.0
    found = interpreted("gencli.models.decoder.kernels.gate_triton", "gated")(made.to(dtype), *options)
    close = {"rtol": 1e-5 if dtype == torch.float32 else 2e-3, "atol": 1e-5, "equal_nan": True}
    torch.testing.assert_close(found, gated(made.to(dtype), *options), **close)
