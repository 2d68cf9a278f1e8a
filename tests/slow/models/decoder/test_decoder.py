"""With packed weights the logits of a lane have the same bits in any company.

Keys and values in half precision: half the memory, about the same logits, the same bits in any company.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.dense_products import can_pack, has_tiles
from tests.models.decoder.test_decoder import FORMATS, LENGTHS, check_logits, logits
from tests.models.native import native_decoder
from tests.models.tiny_models import SUITE_KINDS, VOCAB, base, build_native

needs_packing = pytest.mark.skipif(not can_pack(), reason="needs oneDNN's packed weights, which x86 has")


def wide() -> Any:
    """A model with so many inputs to a product that a single row would be added up in another order."""
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**base(intermediate_size=2304))).eval()


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


@needs_packing
@pytest.mark.parametrize(
    ("kind", "threads", "dtype"),
    [("wide", 2, torch.float32), ("gemma3", 1, torch.bfloat16), ("gpt_oss", 2, torch.float32)],
)
def test_a_lane_does_not_see_its_neighbours(kind: str, threads: int, dtype: torch.dtype) -> None:
    check_lanes(kind, threads, dtype)


@pytest.mark.parametrize(("kind", "kv_dtype"), [*zip(SUITE_KINDS, FORMATS, strict=True)])
def test_logits_are_about_the_same_and_see_no_neighbours(kind: str, kv_dtype: torch.dtype) -> None:
    check_logits(kind, kv_dtype)
