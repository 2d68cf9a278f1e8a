"""Every way of reading bit masks gives what reading them bit by bit gives."""

import torch

from tests.interpreted import interpreted
from tests.processors.kernels.test_bitmask import SHAPES, case


def test_the_kernel_agrees():
    for shape in SHAPES:
        logits, masks, expected = case(*shape)
        interpreted("processors.kernels.bitmask_triton", "apply_bitmask_triton")(logits, masks)
        assert torch.equal(logits, expected), shape
