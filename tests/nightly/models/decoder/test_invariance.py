"""With packed weights the logits of a lane have the same bits in any company."""

import pytest
import torch

from gencli.models.decoder.products.dense_products import can_pack
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.decoder.test_invariance import check_lanes, wide

pytestmark = pytest.mark.skipif(not can_pack(), reason="needs oneDNN's packed weights, which x86 has")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["wide", *NATIVE_CONFIGS])
def test_a_lane_of_any_model_does_not_see_its_neighbours(kind: str, dtype: torch.dtype) -> None:
    for threads in (1, 2):
        check_lanes(kind, threads, dtype)
