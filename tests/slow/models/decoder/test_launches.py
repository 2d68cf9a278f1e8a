"""Kernels that a decode step on CUDA launches, in a layer and outside of all layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.decoder.test_launches import LAUNCHES
from tests.models.native import native_decoder
from tests.models.tiny_models import SUITE_KINDS, build_native
from tests.sham import CUDA, sham_device


def launches(kind: str, num_layers: int) -> dict[str, int]:
    """The launches of a decode step of three rows."""
    decoder = native_decoder(build_native(kind), CUDA)
    runner = DecoderRunner(replace(decoder, layers=decoder.layers[:num_layers]), max_lanes=3)
    with sham_device() as seen:
        for start, count in ((0, 5), (5, 1), (6, 1)):
            seen.clear()
            runner.forward(StepPlan(tuple(Feed(lane, start, (lane + 1,) * count, 1) for lane in range(3))))
        return dict(seen.launches)


def counted(kind: str) -> tuple[int, int]:
    """The launches of a layer, and of a step outside of its layers."""
    with sham_device():
        one, two = (sum(launches(kind, count).values()) for count in (1, 2))
    return two - one, 2 * one - two


of_this_table = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13"
)


@of_this_table
def test_a_layer_launches_no_more_kernels_than_the_table_says() -> None:
    assert {kind: counted(kind) for kind in SUITE_KINDS} == {kind: LAUNCHES[kind] for kind in SUITE_KINDS}
