"""On a device of its own: the same texts, one wait for the device a step, and no tensor left on the host."""

from itertools import product

import pytest

from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.engine.test_device import (
    LAUNCHES,
    check_drafts,
    check_each,
    check_launches,
    check_model,
    folder,
    needs_2_13,
    texts,
)
from tests.slow.engine.test_device import check_decoder as check


def test_each_stage_stop_and_grammar():
    check_each(1)


def test_drafts_of_each_drafter_however_they_are_verified():
    for case in product(("ngram", "model"), ("match", "rejection", "lossy-typical")):
        check_drafts(*case)


@needs_2_13
def test_no_chain_launches_more_kernels_than_the_table_says():
    for chain in LAUNCHES:
        check_launches(chain)


def test_prompts_chunks_and_decoding_share_steps_on_other_models():
    for kind in ("llama", "gemma3", "qwen3", "phi3"):
        check_model(kind)


@pytest.mark.parametrize("kind", sorted({*NATIVE_CONFIGS} - {"mixtral", "gpt_oss"}))
def test_each_family_with_prompts_in_chunks(folder, kind):
    check(folder, kind, texts(), max_batch=3, step_tokens=16)
