"""Both plans of attention, that of float32 on a CPU and that of other dtypes, give the same logits."""

import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.cases import case
from tests.models.native import native_decoder
from tests.models.tiny_models import VOCAB, build_native

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
