"""Decode steps of transformers in static shapes: recorded and replayed they give what they give eagerly."""

import pytest
import transformers as hf

from gencli.models.hf_runner import HFRunner
from processors.graphs import Graphs
from tests.engine.test_step_runner import steady
from tests.models.cases import case
from tests.models.schedules import LANES, check_replays, held, texts, tokens_at
from tests.models.test_hf_graphs import check_logits, model, persimmon, runner
from tests.models.test_hf_runner import unknown
from tests.models.tiny_models import VOCAB, base, build, long_rope
from tests.recorder import CpuRecorder
from tests.sham import on_sham, sham_device
from tests.sham_cuda import differences


def falcon():
    config = hf.FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    return hf.FalconForCausalLM(config).eval()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_replayed_steps_choose_the_tokens_of_eager_ones(kind):
    check_replays(lambda graphs: runner(kind, graphs), num_seeds=2, least=8)


def test_steps_ahead_and_those_of_other_shapes_choose_the_same_tokens():
    graphs = Graphs(CpuRecorder)
    ahead, plain = runner("llama", graphs), runner("llama")
    for seed in range(3):
        assert texts(seed, ahead, run_ahead=True) == texts(seed, plain), seed
    assert graphs.num_replayed


def dynamic_rope():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**base(), rope_parameters=rope))


def loop_over_experts():
    whole = build("qwen3_moe")
    whole.set_experts_implementation("eager")
    return whole


def test_what_has_no_static_shapes_says_why():
    for make, reason in [
        (lambda: build("mamba"), "the model runs one request at a time in each step"),
        (lambda: build("stablelm"), "the model runs one request at a time in each step"),
        (lambda: unknown(build("llama")), "the model's code is its own"),
        (falcon, "the model runs one request at a time in each step"),
        (lambda: build("doge"), "transformers does not compile doge models as one graph"),
        (lambda: long_rope("phimoe"), "its rotary factors follow the longest text of a step"),
        (dynamic_rope, "its rotary factors follow the longest text of a step"),
        (loop_over_experts, "the host looks up which experts a token uses"),
    ]:
        model = make()
        with case(type(model).__name__, reason):
            spec = HFRunner(model, graphs=Graphs(CpuRecorder)).spec
            assert (spec.graphs, spec.can_run_ahead) == (None, False)
            with sham_device():
                there = HFRunner(on_sham(make())).spec
            assert (there.graphs, there.no_graphs) == (None, reason)


def test_logits_are_those_of_other_shapes():
    for kind in ("llama", "gemma3", "persimmon", "mixtral"):
        with case(kind):
            check_logits(kind)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
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


def test_a_run_waits_once_a_step_with_steps_ahead_too():
    with sham_device() as seen:
        run = HFRunner(on_sham(build("llama")), max_lanes=4)
        steps = steady(seen, run, "temperature=0")
        assert differences(*steps) == []
        assert run.spec.can_run_ahead
