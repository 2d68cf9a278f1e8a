"""What scripts/bench/gpu.py does on a card runs on a CPU too, with small shapes and another clock."""

import inspect

import torch
from gpu import measure_card
from gpu_kernels import CHAINS, measure_chains, measure_kernels, measure_rejection
from gpu_layers import measure_parts
from gpu_steps import WAYS, Way, measure_steps
from predictions import Shape
from stopwatch import HostStopwatch

from gencli.engine.engine import Engine
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.gpus import GPUS

CPU, WATCH, H200, READ = torch.device("cpu"), HostStopwatch(), GPUS["H200"], 10e9


SMALL = Shape("small", 2, 64, 128, 4, 2, 16, 600, True)


def test_the_card_has_its_bandwidth_and_its_launches():
    found = [*measure_card(H200, WATCH, CPU, size=1 << 12)]
    assert [one.what for one in found] == [
        "read (sum)", "read (largest)", "copy", "a launch", "a kernel of a graph",
    ]  # fmt: skip
    assert all(one.measured_us > 0 and one.predicted_us > 0 for one in found)


def test_kernels_chains_and_rejection_are_measured_beside_predictions():
    for gpu in [H200, None]:
        found = [*measure_kernels(gpu, READ, WATCH, CPU, (600,), (1, 2))]
        found += measure_chains(gpu, READ, WATCH, CPU, (600,), (2,))
        found.append(measure_rejection(gpu, READ, WATCH, CPU, 600, requests=2))
        assert {one.part for one in found} == {"kernel", "chain", "rejection"}, gpu
        assert {one.what for one in found if one.part == "chain"} == set(CHAINS), gpu
        assert all(one.measured_us > 0 and one.passes > 0 and one.measured_share > 0 for one in found), gpu
        assert {one.predicted_us is None for one in found} == {gpu is None}, gpu


def test_a_part_that_is_refused_says_why():
    class FullCard(HostStopwatch):
        def us(self, call, *, is_graph=True):
            raise RuntimeError("CUDA out of memory.\nTry less.")

    first = next(measure_parts(None, READ, FullCard(), CPU, [SMALL], (1,)))
    assert (first.what, first.how, first.measured_us) == ("small norm", "CUDA out of memory.", None)


def test_a_way_that_is_refused_says_why_and_the_others_go_on():
    ways = (Way("wrong", load={"kv_dtype": "float99"}), Way("eager"))
    wrong, right = measure_steps(None, READ, WATCH, CPU, [SMALL], [1], context=5, steps=1, ways=ways)
    assert wrong.how.startswith("wrong: ")
    assert wrong.measured_us is None
    assert right.measured_us > 0


def test_the_ways_have_options_that_there_are():
    load, engine = (inspect.signature(one).parameters for one in (DecoderRunner.load, Engine.__init__))
    for way in WAYS:
        assert set(way.load) <= set(load)
        assert set(way.engine) <= set(engine)
