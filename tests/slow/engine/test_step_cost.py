"""What a decode step costs the host: operations of PyTorch, passes over the logits, calls of functions."""

import pytest
import torch

from tests.engine.test_step_cost import WIDTH, Dispatched, engine

# Operations, and passes over all logits, of a step of four rows. Raise a number only for a reason.
OPERATIONS = {"greedy": (13, 5), "default": (20, 7), "temperature, top_p": (20, 7), "four stages": (46, 11)}


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13")
def test_a_step_runs_no_more_operations_than_the_table_says():
    for chain in OPERATIONS:
        on = engine(chain, 4)
        with Dispatched(4 * WIDTH) as seen:
            on.step()
        operations, passes = OPERATIONS[chain]
        assert seen.operations <= operations, chain
        assert seen.passes <= passes, chain
