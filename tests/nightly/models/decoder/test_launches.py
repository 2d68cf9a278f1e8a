"""Kernels that a decode step on CUDA launches, in a layer and outside of all layers."""

from __future__ import annotations

from tests.models.decoder.test_launches import LAUNCHES
from tests.slow.models.decoder.test_launches import counted, of_this_table


@of_this_table
def test_a_layer_of_any_model_launches_no_more_kernels_than_the_table_says() -> None:
    assert {kind: counted(kind) for kind in LAUNCHES} == LAUNCHES
