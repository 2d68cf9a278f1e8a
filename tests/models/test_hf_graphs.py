"""Decode steps of transformers in static shapes: recorded and replayed they give what they give eagerly."""

from functools import cache

import pytest
import torch
import transformers as hf

from gencli.core.step import Feed, StepPlan
from gencli.models.hf import HFRunner
from gencli.models.kv.flat import FLAT_MODELS
from processors.graphs import Graphs
from tests.engine.test_device_steps import steady
from tests.models.kv.test_flat import build as build_flat
from tests.models.schedules import LANES, behind_a_move, check_replays, held, prompts, texts, tokens_at
from tests.models.test_selfcheck import unknown
from tests.models.tiny_models import (
    CONFIGS,
    SWITCH,
    VOCAB,
    base,
    build,
    build_native,
    long_rope,
)
from tests.recorder import CpuRecorder
from tests.sham import on_sham, sham_device
from tests.sham_cuda import differences


def persimmon():
    """A model that no list names, so that it is tried."""
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.PersimmonConfig(**base())).eval()


def falcon():
    config = hf.FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    return hf.FalconForCausalLM(config).eval()


@cache
def model(kind):
    if kind == "persimmon":
        return persimmon()
    return build(kind) if kind in CONFIGS else build_native(kind)


def runner(kind, graphs=None, max_lanes=LANES):
    return HFRunner(model(kind), max_lanes=max_lanes, graphs=graphs)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "opt"])
def test_replayed_steps_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=8, least=30)


def test_steps_ahead_and_those_of_other_shapes_choose_the_same_tokens():
    graphs = Graphs(CpuRecorder)
    ahead, plain = runner("llama", graphs), runner("llama")
    for seed in range(6):
        assert texts(seed, ahead, run_ahead=True) == texts(seed, plain), seed
    assert graphs.num_replayed


KINDS = ["llama", "qwen2", "gemma", "mistral", "gemma3", "gpt2", "opt", "gpt_neox", "persimmon", "mixtral"]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_other_shapes(kind):
    graphs = Graphs(CpuRecorder)
    steps, length = 4, 21  # longer than the windows
    found = [held(runner(kind, one), steps=steps, length=length) for one in (graphs, Graphs(None), None)]
    for recorded, eager, plain in zip(*found, strict=True):
        assert torch.equal(recorded, eager)
        torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert (graphs.num_recorded, graphs.num_replayed) == (1, 3)


@pytest.mark.parametrize("implementation", [None, "eager"])
@pytest.mark.parametrize("kind", sorted(FLAT_MODELS & set(hf.CONFIG_MAPPING)))
def test_every_model_of_the_packed_layout_has_static_steps(kind, implementation):
    whole = build_flat(kind, implementation)
    graphs = Graphs(CpuRecorder)
    one, other = (held(HFRunner(whole, max_lanes=5, graphs=given), steps=3) for given in (graphs, None))
    for recorded, plain in zip(one, other, strict=True):
        torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed == 2


def test_a_long_rope_takes_the_factors_of_each_text():
    def logits(graphs):
        run = HFRunner(long_rope("phi3"), max_lanes=3, graphs=graphs)
        places = (SWITCH - 3, SWITCH + 5, 4)
        for lane, length in enumerate(places):
            run.forward(StepPlan((prompts(length, [lane]).feeds[0],)))
        return [
            run.forward(StepPlan(tuple(Feed(lane, at + step, (9,), 1) for lane, at in enumerate(places))))
            for step in range(6)
        ]

    graphs = Graphs(CpuRecorder)
    for one, other in zip(logits(graphs), logits(None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed


@pytest.mark.parametrize("lanes", [(0, 1, 2), (2, 0), (4, 1), (0, 1, 2, 3, 4)], ids=str)
def test_lanes_are_read_wherever_their_rows_are(lanes):
    def logits(graphs):
        run = runner("llama", graphs, max_lanes=5)
        run.forward(prompts(9, range(5)))  # each lane has its row
        ids = torch.tensor([21 + lane for lane in lanes])
        plans = [tokens_at(9 + step, lanes, last=21) for step in range(6)]
        found = [run.forward(plan) for plan in plans[:3]]
        if graphs is None:
            return found + [run.forward(plan) for plan in plans[3:]]
        return found + [run.forward_ahead(tokens_at(9 + step, lanes, last=0), ids) for step in range(3, 6)]

    graphs = Graphs(CpuRecorder)
    for one, other in zip(logits(graphs), logits(None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert (graphs.num_recorded, graphs.num_replayed) == (1, 5)


def test_nobody_reads_the_spare_row():
    wanted = held(runner("llama", Graphs(CpuRecorder)), steps=4)
    run = runner("llama", Graphs(CpuRecorder))
    assert torch.equal(held(run, steps=1)[0], wanted[0])
    store = run._lanes._cache.store
    with torch.inference_mode():
        for buffer in store.buffers:
            buffer.data[store.rows.spare] = torch.nan
    for step, one in enumerate(wanted[1:], 1):
        assert torch.equal(run.forward(tokens_at(5 + step)), one)


def test_a_text_of_one_token_needs_no_prompt_before():
    graphs = Graphs(CpuRecorder)
    run, other = runner("llama", graphs), runner("llama")
    for step in range(5):
        plan = tokens_at(step, range(2))
        torch.testing.assert_close(run.forward(plan), other.forward(plan), rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed == 3  # the first step made the buffers


def test_growing_buffers_are_recorded_anew():
    graphs = Graphs(CpuRecorder)
    run, other = runner("llama", graphs), runner("llama", Graphs(None))
    for one in (run, other):
        held(one, steps=3)
        one.forward(StepPlan((prompts(600, [3]).feeds[0],)))
    for step in range(4):
        assert torch.equal(run.forward(tokens_at(8 + step)), other.forward(tokens_at(8 + step)))
    assert graphs.num_recorded == 2


def test_a_buffer_of_a_later_layer_that_moves_alone_is_read_where_it_is():
    runs = [runner("llama", Graphs(make)) for make in (CpuRecorder, None)]
    found = [behind_a_move(run, run._lanes._cache.store.buffers[-1]) for run in runs]
    assert all(map(torch.equal, *found))


def test_a_draft_of_the_first_layers_has_graphs_of_its_own():
    graphs = Graphs(CpuRecorder)
    draft = runner("llama", graphs).first_layers(1, max_lanes=2)
    held(draft, steps=3, lanes=(0,))
    assert draft.spec.graphs is not graphs
    assert draft.spec.graphs.num_recorded == 1


def dynamic_rope():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**base(), rope_parameters=rope))


def loop_over_experts():
    whole = build("qwen3_moe")
    whole.set_experts_implementation("eager")
    return whole


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: build("mamba"), "the model runs one request at a time in each step"),
        (lambda: build("stablelm"), "the model runs one request at a time in each step"),
        (lambda: unknown(build("llama")), "the model's code is its own"),
        (falcon, "the model runs one request at a time in each step"),
        (lambda: build("doge"), "transformers does not compile doge models as one graph"),
        (lambda: long_rope("phimoe"), "its rotary factors follow the longest text of a step"),
        (dynamic_rope, "its rotary factors follow the longest text of a step"),
        (loop_over_experts, "the host looks up which experts a token uses"),
    ],
    ids=["mamba", "stablelm", "own code", "falcon", "doge", "phimoe", "dynamic rope", "experts"],
)
def test_what_has_no_static_shapes_says_why(make, reason):
    spec = HFRunner(make(), graphs=Graphs(CpuRecorder)).spec
    assert spec.graphs is None
    assert not spec.can_run_ahead
    with sham_device():
        there = HFRunner(on_sham(make())).spec
        assert there.graphs is None
    assert there.no_graphs == reason


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "opt"])
def test_two_steps_launch_the_same_operations_at_the_same_addresses_and_none_waits(kind):
    with sham_device() as seen:
        run = HFRunner(on_sham(build(kind)), max_lanes=LANES)
        held(run, steps=2)
        seen.clear()
        steps = []
        for step in (2, 3):
            run.forward(tokens_at(5 + step))
            steps.append(seen.cut())
        assert not seen.waits
    assert differences(*steps) == []


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


def test_a_run_waits_once_a_step_with_steps_ahead_too():
    with sham_device() as seen:
        run = HFRunner(on_sham(build("llama")), max_lanes=4)
        steps = steady(seen, run, "temperature=0")
        assert differences(*steps) == []
        assert run.spec.can_run_ahead
