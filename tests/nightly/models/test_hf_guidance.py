"""Guidance on real architectures is the library's own guidance_scale, whatever shares the step."""

import pytest

from tests.slow.models.test_hf_guidance import check_guidance


@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
def test_texts_and_logits_of_other_models_are_those_of_the_library(kind):
    check_guidance(kind)
