"""Decode steps of transformers in static shapes: recorded and replayed they give what they give eagerly."""

import pytest
import torch
import transformers as hf

from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_batches import FLAT_MODELS
from processors.graphs import Graphs
from tests.models.cases import case
from tests.models.kv.test_model_calls import build as build_flat
from tests.models.schedules import check_replays, held
from tests.models.test_hf_graphs import check_logits, persimmon, runner
from tests.recorder import CpuRecorder


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "opt"])
def test_replayed_steps_of_many_seeds_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=8, least=30)


KINDS = ["llama", "qwen2", "gemma", "mistral", "gemma3", "gpt2", "opt", "gpt_neox", "persimmon", "mixtral"]


def test_logits_of_all_models_are_those_of_other_shapes():
    for kind in KINDS:
        with case(kind):
            check_logits(kind)


@pytest.mark.parametrize("kind", sorted(FLAT_MODELS & set(hf.CONFIG_MAPPING)))
def test_every_model_of_the_packed_layout_has_static_steps(kind):
    for implementation in (None, "eager"):
        whole = build_flat(kind, implementation)
        graphs = Graphs(CpuRecorder)
        one, other = (held(HFRunner(whole, max_lanes=5, graphs=given), steps=3) for given in (graphs, None))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        assert graphs.num_replayed == 2
