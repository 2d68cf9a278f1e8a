"""Experts in MXFP4 are widened as transformers widens them, and read as any other weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gencli.models.files.model_files import Quantize
from gencli.models.quantized_copy import quantize_model
from tests.models.decoder.test_mxfp4 import saved
from tests.models.decoder.test_quantized import logits
from tests.models.native import load_native


@pytest.mark.parametrize(("quantize", "error"), [("int8", 0.15), ("int4", 0.4)])
def test_they_are_quantized_as_other_weights(
    saved: tuple[Path, Any], quantize: Quantize, error: float, tmp_path: Path
) -> None:
    exact, made = (
        torch.cat(logits(load_native(saved[0], **options), [0, 1, 2]))
        for options in ({"dtype": "float32"}, {"quantize": quantize})
    )
    assert (made - exact).norm() < error * exact.norm()
    written = quantize_model(str(saved[0]), tmp_path / "after", quantize).folder
    assert not any("_blocks" in name for name in load_file(written / "model.safetensors"))
    assert torch.equal(torch.cat(logits(load_native(written), [0, 1, 2])), made)
