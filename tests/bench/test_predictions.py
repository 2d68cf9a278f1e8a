"""Predicted decode steps agree with what others published, and with our aims."""

from dataclasses import replace
from itertools import product

import pytest
from predictions import SHAPES, Shape, predict_steps, step_work

from gencli.models.gpus import GPUS

LLAMA_2_7B = Shape("7B", 32, 4096, 11_008, 32, 32, 128, 32_000, False)


def test_gpt_fast_on_an_a100_is_predicted_within_a_fifth():
    for weights, reported in [("bf16", 1397e9), ("int8", 1069e9), ("int4", 863e9)]:
        size = {"bf16": 2, "int8": 1, "int4": 0.5625}[weights] * 6.6e9
        seconds = step_work(LLAMA_2_7B, weights, 1, 200).seconds(GPUS["A100"])
        assert seconds == pytest.approx(size / reported, rel=0.2), weights


def test_a_1b_model_without_a_megakernel_has_half_of_an_h100():
    (found, *_) = predict_steps(GPUS["H100"], [SHAPES["1B"]], [1], 200)
    assert 100 * 2.47e9 / 3350e9 / (found.predicted_us * 1e-6) == pytest.approx(50, rel=0.1)


def test_a_graph_is_predicted_to_reach_the_aim_at_one_row():
    for (name, aim), gpu in product([("1B", 50), ("8B", 75)], ["RTX 4090", "A100", "H100", "H200"]):
        (found, *_) = predict_steps(GPUS[gpu], [SHAPES[name]], [1], 512)
        assert found.how == "graphs", (gpu, name)
        assert round(found.predicted_share) >= aim, (gpu, name)


def test_fewer_layers_take_less_and_an_eager_step_never_takes_less_than_a_graph():
    shape = SHAPES["8B"]
    for one in (shape, replace(shape, layers=4)):
        records = [*predict_steps(GPUS["H200"], [one], [1, 8, 32], 512)]
        for graph, eager in zip(records[::2], records[1::2], strict=True):
            assert (graph.how, eager.how) == ("graphs", "eager")
            assert graph.predicted_us <= eager.predicted_us
    few = step_work(replace(shape, layers=4), "bf16", 1, 512)
    assert few.kernels < step_work(shape, "bf16", 1, 512).kernels
