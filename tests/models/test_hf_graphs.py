"""Decode steps of transformers in static shapes: recorded and replayed they give what they give eagerly."""

from functools import cache

import pytest
import torch
import transformers as hf

from gencli.models.hf_runner import HFRunner
from processors.graphs import Graphs
from tests.models.cases import case
from tests.models.schedules import LANES, held, prompts, tokens_at
from tests.models.tiny_models import CONFIGS, base, build, build_native
from tests.recorder import CpuRecorder
from tests.sham import on_sham, sham_device


def persimmon():
    """A model that no list names, so that it is tried."""
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.PersimmonConfig(**base())).eval()


@cache
def model(kind):
    if kind == "persimmon":
        return persimmon()
    return build(kind) if kind in CONFIGS else build_native(kind)


def runner(kind, graphs=None, max_lanes=LANES):
    return HFRunner(model(kind), max_lanes=max_lanes, graphs=graphs)


def check_logits(kind):
    graphs = Graphs(CpuRecorder)
    steps, length = 4, 21  # longer than the windows
    found = [held(runner(kind, one), steps=steps, length=length) for one in (graphs, Graphs(None), None)]
    for recorded, eager, plain in zip(*found, strict=True):
        assert torch.equal(recorded, eager)
        torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert (graphs.num_recorded, graphs.num_replayed) == (1, 3)


def test_lanes_are_read_wherever_their_rows_are():
    def logits(graphs, lanes):
        run = runner("llama", graphs, max_lanes=5)
        run.forward(prompts(9, range(5)))  # each lane has its row
        ids = torch.tensor([21 + lane for lane in lanes])
        plans = [tokens_at(9 + step, lanes, last=21) for step in range(6)]
        found = [run.forward(plan) for plan in plans[:3]]
        if graphs is None:
            return found + [run.forward(plan) for plan in plans[3:]]
        return found + [run.forward_ahead(tokens_at(9 + step, lanes, last=0), ids) for step in range(3, 6)]

    for lanes in ((0, 1, 2), (2, 0), (4, 1), (0, 1, 2, 3, 4)):
        with case(lanes):
            graphs = Graphs(CpuRecorder)
            torch.testing.assert_close(logits(graphs, lanes), logits(None, lanes), rtol=1e-3, atol=1e-3)
            assert (graphs.num_recorded, graphs.num_replayed) == (1, 5)


def test_a_text_of_one_token_needs_no_prompt_before():
    graphs = Graphs(CpuRecorder)
    run, other = runner("llama", graphs), runner("llama")
    for step in range(5):
        plan = tokens_at(step, range(2))
        torch.testing.assert_close(run.forward(plan), other.forward(plan), rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed == 3  # the first step made the buffers


# By kind: launches of a layer, and of a step outside of its layers. Raise a number only for a reason.
LAUNCHES = {"llama": (43, 24), "gpt2": (26, 14)}


@pytest.mark.parametrize("kind", LAUNCHES)
def test_a_layer_launches_no_more_kernels_than_the_table_says(kind):
    counts = []
    for layers in (1, 2):
        config = CONFIGS[kind]()
        config.num_hidden_layers = layers
        torch.manual_seed(0)
        with sham_device() as seen:
            run = HFRunner(on_sham(hf.AutoModelForCausalLM.from_config(config).eval()), max_lanes=3)
            held(run, steps=1)
            seen.clear()
            run.forward(tokens_at(6))
            counts.append(sum(seen.launches.values()))
    one, two = counts
    assert (two - one, 2 * one - two) == LAUNCHES[kind]
