"""Passes on CUDA have the logits of the CPU, and wait for nothing."""

from __future__ import annotations

import torch

from tests.models.cases import case
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.decoder.test_attention_plans import check_logits, check_narrower


def test_logits_of_all_models_are_those_of_the_cpu_and_nothing_waits() -> None:
    for kind in NATIVE_CONFIGS:
        with case(kind):
            check_logits(kind)
    for kind in ("llama", "gemma3"):
        for kv_dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int8):
            with case(kind, kv_dtype):
                check_narrower(kind, kv_dtype)
