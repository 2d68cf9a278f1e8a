"""Decode steps in static shapes: recorded on the CPU and replayed they give what they give eagerly.

Kernels that a decode step on CUDA launches, in a layer and outside of all layers.
"""

from __future__ import annotations

import pytest

from tests.models.decoder.test_decode_steps import LAUNCHES, runner
from tests.models.schedules import Guessing, check_replays
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.slow.models.decoder.test_decode_steps import check_logits, counted, of_this_table


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
def test_replayed_steps_of_many_seeds_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200)
    if kind in ("llama", "gemma2"):
        check_replays(lambda graphs: runner(kind, graphs), num_seeds=50, least=200, drafter=Guessing)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_replayed_steps_of_many_seeds_choose_experts_on_the_device(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=12, least=48)


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_all_models_have_the_logits_of_eager_steps_and_of_the_plain_decoder(kind):
    check_logits(kind, range(3))


@of_this_table
def test_a_layer_of_any_model_launches_no_more_kernels_than_the_table_says() -> None:
    assert {kind: counted(kind) for kind in LAUNCHES} == LAUNCHES
