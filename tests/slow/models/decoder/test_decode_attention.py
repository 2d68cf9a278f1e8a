"""Passes on CUDA have the logits of the CPU, and wait for nothing."""

from __future__ import annotations

from typing import Any

import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.cases import case
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import SUITE_KINDS, VOCAB, build_native
from tests.sham import CUDA, Record, sham_device
from tests.slow.models.decoder.test_attention import STEPS


def runner(kind: str, device: torch.device, *, seen: Record | None = None, **options: Any) -> DecoderRunner:
    """A runner with a tiny model. `seen` forgets what loading did."""
    made = DecoderRunner(native_decoder(build_native(kind), device), max_lanes=3, **options)
    if seen is not None:
        seen.clear()
    return made


def plan(step: tuple[tuple[int, int, int], ...]) -> StepPlan:
    """The feeds (lane, start, count) of a step; a token is a function of its lane and place."""
    feeds = []
    for lane, start, count in step:
        tokens = tuple((7 * lane + 3 * place + place**2) % VOCAB for place in range(start, start + count))
        feeds.append(Feed(lane, start, tokens, count))
    return StepPlan(tuple(feeds))


def on_host(found: torch.Tensor) -> torch.Tensor:
    return getattr(found, "host", found)


def check_logits(kind: str) -> None:
    """They are those of the CPU, and nothing waits."""
    more = (((0, 71, 3), (1, 9, 40), (2, 70, 1)), ((2, 71, 1), (1, 49, 1)))
    steps = [plan(step) for step in (*STEPS[:2], *more)]
    here = runner(kind, CPU)
    expected = [here.forward(step) for step in steps]
    with sham_device() as seen:
        there = runner(kind, CUDA, seen=seen)
        found = [there.forward(step) for step in steps]
        waits = dict(seen.waits)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(on_host(one), other, rtol=1e-3, atol=1e-3)
    assert waits == {}


def check_narrower(kind: str, kv_dtype: torch.dtype) -> None:
    here = runner(kind, CPU, kv_dtype=kv_dtype)
    expected = [here.forward(plan(step)) for step in STEPS]
    with sham_device():
        there = runner(kind, CUDA, kv_dtype=kv_dtype)
        found = [there.forward(plan(step)) for step in STEPS]
    for one, other in zip(found, expected, strict=True):
        # Numbers beside the middle of two of the format may be rounded to either.
        assert float((on_host(one) - other).norm() / other.norm()) < 0.02


def test_logits_are_those_of_the_cpu_and_nothing_waits() -> None:
    for kind in SUITE_KINDS:
        with case(kind):
            check_logits(kind)
    for kind, kv_dtype in (("llama", torch.int8), ("gemma3", torch.float8_e4m3fn)):
        with case(kind, kv_dtype):
            check_narrower(kind, kv_dtype)
