"""Keys and values in half precision: half the memory, about the same logits, the same bits in any company."""

from __future__ import annotations

import pytest
import torch

from tests.models.decoder.test_kv_dtype import FORMATS, check_logits
from tests.models.tiny_models import SUITE_KINDS


@pytest.mark.parametrize(("kind", "kv_dtype"), [*zip(SUITE_KINDS, FORMATS, strict=True)])
def test_logits_are_about_the_same_and_see_no_neighbours(kind: str, kv_dtype: torch.dtype) -> None:
    check_logits(kind, kv_dtype)
