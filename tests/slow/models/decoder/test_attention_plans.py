"""Both plans of attention, that of float32 on a CPU and that of other dtypes, give the same logits.

Passes on CUDA have the logits of the CPU, and wait for nothing. Attention by bags: equal to the plain
formula, and with the same bits in any company.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.cases import case
from tests.models.decoder.test_attention_plans import _NOISE
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import SUITE_KINDS, VOCAB, build_native
from tests.sham import CUDA, Record, sham_device

STEPS = (  # (lane, start, tokens): prompts, decode steps, drafts, and a chunk of a prompt
    ((0, 0, 70), (1, 0, 5), (2, 0, 30)),
    ((0, 70, 1), (1, 5, 4), (2, 30, 40)),
    ((2, 70, 1), (0, 71, 3), (1, 9, 20)),
)


def logits(runner: DecoderRunner) -> torch.Tensor:
    """All logits of the steps, [R, V]."""
    noise = torch.Generator().manual_seed(6)
    rows = []
    for step in STEPS:
        feeds = []
        for lane, start, count in step:
            tokens = tuple(torch.randint(0, VOCAB, (count,), generator=noise).tolist())
            feeds.append(Feed(lane, start, tokens, count))
        rows.append(runner.forward(StepPlan(tuple(feeds))))
    return torch.cat(rows)


def test_plans_agree() -> None:
    for kind in ["llama", "gemma2", "gemma3", "smollm3"]:
        with case(kind):
            tiled, plain = (
                logits(DecoderRunner(native_decoder(build_native(kind).to(dtype)), max_lanes=3))
                for dtype in (torch.float32, torch.float64)
            )
            torch.testing.assert_close(tiled.double(), plain, rtol=1e-3, atol=1e-3)


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


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gemma3", "qwen3_moe", "gpt_oss"])
def test_tokens_have_the_same_bits_one_by_one_and_as_drafts(kind: str) -> None:
    decoder = native_decoder(build_native(kind))
    tokens = torch.randint(0, VOCAB, (60,), generator=_NOISE).tolist()

    def logits(widths: list[int]) -> torch.Tensor:
        runner, start, rows = DecoderRunner(decoder, max_lanes=1), 0, []
        for width in widths:
            feed = Feed(0, start, tuple(tokens[start : start + width]), width)
            rows.append(runner.forward(StepPlan((feed,))))
            start += width
        return torch.cat(rows)

    assert torch.equal(logits([40] + [1] * 20), logits([40, 4, 16]))
