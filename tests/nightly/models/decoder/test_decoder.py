"""With packed weights the logits of a lane have the same bits in any company.

Keys and values in half precision: half the memory, about the same logits, the same bits in any company.
"""

from __future__ import annotations

import pytest
import torch

from gencli.models.decoder.products.dense_products import can_pack
from tests.models.cases import case
from tests.models.decoder.test_decoder import FORMATS, check_logits
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.decoder.test_decoder import check_lanes, wide

needs_packing = pytest.mark.skipif(not can_pack(), reason="needs oneDNN's packed weights, which x86 has")


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["wide", *NATIVE_CONFIGS])
def test_a_lane_of_any_model_does_not_see_its_neighbours(kind: str, dtype: torch.dtype) -> None:
    for threads in (1, 2):
        check_lanes(kind, threads, dtype)


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_logits_of_all_models_are_about_the_same_in_each_format(kind: str) -> None:
    for kv_dtype in FORMATS:
        with case(kv_dtype):
            check_logits(kind, kv_dtype)
