"""The planned memory of a model is what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.test_memory import check_plan


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_weights_and_cache_of_all_models_take_what_is_planned(kind: str, tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        check_plan(tmp_path / dtype, kind, dtype)
