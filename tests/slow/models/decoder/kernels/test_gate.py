"""The kernel of the gate has the values of the decoder's own code."""

from itertools import product

import torch

from gencli.models.decoder.kernels.layer_kernels import ACTIVATIONS, gated
from tests.interpreted import interpreted
from tests.models.cases import case


def test_values():
    for dtype, activation in product([torch.float32, torch.float16], ACTIVATIONS):
        with case(dtype, activation):
            made = torch.cat([torch.randn(2, 2060), torch.linspace(-9, 9, 2060)[None].expand(2, -1)])
            made[0, :4] = torch.tensor([0.0, torch.inf, torch.nan, -60.0])
            options = activation, 7.0 if activation == "clamped" else 0.0
            found = interpreted("gencli.models.decoder.kernels.gate_triton", "gated")(
                made.to(dtype), *options
            )
            close = {"rtol": 1e-5 if dtype == torch.float32 else 2e-3, "atol": 1e-5, "equal_nan": True}
            torch.testing.assert_close(found, gated(made.to(dtype), *options), **close)
