"""Decode steps on a device: the attention of rows of any length, in shapes that do not depend on them."""

from __future__ import annotations

import pytest
import torch

from gencli.core.step import Feed, StepPlan
from gencli.models.decoder.runner import DecoderRunner
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import NATIVE_CONFIGS, VOCAB, build_native
from tests.sham import CUDA, sham_device

LENGTHS = {0: 40, 2: 3, 3: 17}  # tokens by lane; the window of the models is 16


def feeds(lengths: dict[int, int]) -> tuple[Feed, ...]:
    noise = torch.Generator().manual_seed(3)
    return tuple(
        Feed(lane, 0, tuple(torch.randint(0, VOCAB, (length,), generator=noise).tolist()), 1)
        for lane, length in lengths.items()
    )


def logits(kind: str, device: torch.device) -> list[torch.Tensor]:
    """The logits of a prompt step and of two decode steps."""
    runner = DecoderRunner(native_decoder(build_native(kind), device), max_lanes=4)
    steps = [feeds(LENGTHS)]
    steps += [
        tuple(Feed(lane, length + more, (7 + lane + more,), 1) for lane, length in LENGTHS.items())
        for more in range(2)
    ]
    return [runner.forward(StepPlan(step)) for step in steps]


@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_logits_are_those_of_the_cpu_and_nothing_waits(kind: str) -> None:
    here = logits(kind, CPU)
    with sham_device() as seen:
        there = logits(kind, CUDA)
        waits = dict(seen.waits)
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(getattr(other, "host", other), one, rtol=1e-3, atol=1e-3)
    if kind not in ("mixtral", "qwen3_moe"):  # whose experts are chosen on the host
        assert waits == {}
