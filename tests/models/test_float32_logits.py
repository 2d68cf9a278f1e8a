"""Logits are float32 whatever the format of the weights: rounded ones have exact ties at the top."""

from pathlib import Path
from typing import Any

import torch

from gencli.models.hf_runner import HFRunner
from tests.models.decoder.test_quantized import logits
from tests.models.native import load_native
from tests.models.tiny_models import build_native

NARROW = (torch.bfloat16, torch.float16)


def check(runner: Any, case: object) -> None:
    for found in logits(runner, [0, 1]):
        assert found.dtype == torch.float32, case
        assert not any(torch.equal(found.to(dtype).float(), found) for dtype in NARROW), case


def test_no_format_of_the_weights_rounds_the_logits(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"dtype": "bfloat16"}, {"dtype": "float16"}]
    options += [{"quantize": "int8"}, {"quantize": "int4"}]
    for kind in ("llama", "gemma2"):  # of which the second has one matrix for both ends
        build_native(kind).save_pretrained(tmp_path / kind)
        for given in options:
            check(load_native(tmp_path / kind, **given), (kind, given))
        for dtype in ("bfloat16", "float16"):
            check(HFRunner.load(tmp_path / kind, dtype=dtype, device="cpu"), (kind, dtype))
