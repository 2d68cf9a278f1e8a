"""With packed weights the logits of a lane have the same bits in any company."""

from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.dense_products import can_pack, has_tiles
from tests.models.native import native_decoder
from tests.models.tiny_models import VOCAB, base, build_native

LENGTHS = (20, 20, 5, 9, 33, 2, 60, 17)


_NOISE = torch.Generator().manual_seed(3)


PROMPTS = [torch.randint(0, VOCAB, (length,), generator=_NOISE).tolist() for length in LENGTHS]


STEPS = 4


pytestmark = pytest.mark.skipif(not can_pack(), reason="needs oneDNN's packed weights, which x86 has")


def wide() -> Any:
    """A model with so many inputs to a product that a single row would be added up in another order."""
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**base(intermediate_size=2304))).eval()


def logits(runner: DecoderRunner, lanes: list[int]) -> list[torch.Tensor]:
    """The logits of each lane behind its prompt and after some more tokens, [STEPS + 1, V]."""
    rows = [runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(PROMPTS[lane])) for lane in lanes)))]
    for step in range(STEPS):
        feeds = tuple(Feed(lane, LENGTHS[lane] + step, (lane + step,)) for lane in lanes)
        rows.append(runner.forward(StepPlan(feeds)))
    return [torch.stack([row[index] for row in rows]) for index in range(len(lanes))]


def check_lanes(kind: str, threads: int, dtype: torch.dtype) -> None:
    """A lane does not see its neighbours."""
    if not can_pack(dtype):
        pytest.skip("this machine does not pack the format")
    if dtype == torch.bfloat16 and has_tiles():
        pytest.skip("the bits of AMX depend on the number of rows")
    decoder = native_decoder((wide() if kind == "wide" else build_native(kind)).to(dtype))
    torch.set_num_threads(threads)
    runner = DecoderRunner(decoder, max_lanes=len(LENGTHS))
    together = logits(runner, list(range(len(LENGTHS))))
    for lane, expected in enumerate(together):
        alone = DecoderRunner(decoder, max_lanes=len(LENGTHS))
        is_equal = torch.equal(logits(alone, [lane])[0], expected)
        assert is_equal, lane


@pytest.mark.parametrize(
    ("kind", "threads", "dtype"),
    [("wide", 2, torch.float32), ("gemma3", 1, torch.bfloat16), ("gpt_oss", 2, torch.float32)],
)
def test_a_lane_does_not_see_its_neighbours(kind: str, threads: int, dtype: torch.dtype) -> None:
    check_lanes(kind, threads, dtype)
