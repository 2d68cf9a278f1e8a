"""The scripts of scripts/bench."""

from dataclasses import replace

from gpu_layers import measure_parts
from gpu_parts import predict_parts
from gpu_steps import Way, measure_steps

from tests.bench.test_scripts import CPU, H200, READ, SMALL, WATCH


def test_parts_of_a_layer_are_measured_beside_the_predictions_that_are_printed_alone():
    found = [*measure_parts(H200, READ, WATCH, CPU, [SMALL], (1, 2))]
    assert all(one.measured_us > 0 and one.measured_share > 0 for one in found)
    alone = [replace(one, measured_us=None, gb_per_s=None, measured_share=None) for one in found]
    assert alone == [*predict_parts(H200, [SMALL], (1, 2))]
    assert {(one.what, one.rows) for one in found} >= {
        ("small norm", 1),
        ("small attention, 4096 keys", 2),
        ("small chunk in one order, 512 keys", 512),
        ("small gate_up int4", 32),
    }


def test_steps_of_a_random_model_are_measured():
    for shape in [SMALL, replace(SMALL, is_tied=False)]:
        ways = (Way("eager"), Way("eager", "int8"))
        found = [*measure_steps(H200, READ, WATCH, CPU, [shape], [1, 3], context=5, steps=2, ways=ways)]
        assert all(one.measured_rate for one in found), shape
        told = [(one.what, one.rows, one.how) for one in found]
        assert told == [(f"small {kind}", rows, "eager") for kind in ("bf16", "int8") for rows in (1, 3)]
