"""gencli's own decoder on a device of its own: the texts of the CPU, and one wait for the device a step."""

import pytest

from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.engine.test_device_decoder import SUITE, check, folder, texts


@pytest.mark.parametrize("kind", sorted({*NATIVE_CONFIGS} - {*SUITE}))
def test_each_family_with_prompts_in_chunks(folder, kind):
    check(folder, kind, texts(), max_batch=3, step_tokens=16)
