"""Keys and values in half precision: half the memory, about the same logits, the same bits in any company."""

from __future__ import annotations

import pytest

from tests.models.cases import case
from tests.models.decoder.test_kv_dtype import FORMATS, check_logits
from tests.models.tiny_models import NATIVE_CONFIGS


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_logits_of_all_models_are_about_the_same_in_each_format(kind: str) -> None:
    for kv_dtype in FORMATS:
        with case(kv_dtype):
            check_logits(kind, kv_dtype)
