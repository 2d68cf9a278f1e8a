"""A decoder with quantized weights: close to the one in float32, and equal to itself in any company."""

from pathlib import Path

import pytest

from tests.models.tiny_models import NATIVE_CONFIGS, SUITE_KINDS
from tests.slow.models.decoder.test_decoder_layers import check_logits


@pytest.mark.parametrize("kind", [kind for kind in NATIVE_CONFIGS if kind not in SUITE_KINDS])
def test_logits_of_all_other_models_are_about_those_of_the_weights(kind: str, tmp_path: Path) -> None:
    check_logits(kind, tmp_path)
