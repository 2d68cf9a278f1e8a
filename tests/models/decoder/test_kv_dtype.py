"""Keys and values in half precision: half the memory, about the same logits, the same bits in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.runner import DecoderRunner
from gencli.models.onednn import can_pack
from gencli.runtime.models import ModelChoice, load
from tests.models.decoder.test_invariance import LENGTHS, logits
from tests.models.native import native_decoder
from tests.models.test_backend import load_native
from tests.models.tiny_models import NATIVE_CONFIGS, build_native

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("kv_dtype", HALVES)
@pytest.mark.parametrize("kind", NATIVE_CONFIGS)
def test_logits_are_about_the_same_and_see_no_neighbours(kind: str, kv_dtype: torch.dtype) -> None:
    decoder = native_decoder(build_native(kind))
    exact = logits(DecoderRunner(decoder, max_lanes=len(LENGTHS)), list(range(len(LENGTHS))))
    runner = DecoderRunner(decoder, max_lanes=len(LENGTHS), kv_dtype=kv_dtype)
    together = logits(runner, list(range(len(LENGTHS))))
    for lane in (0, 2, 5):
        assert float((together[lane] - exact[lane]).norm() / exact[lane].norm()) < 0.02
        alone = DecoderRunner(decoder, max_lanes=len(LENGTHS), kv_dtype=kv_dtype)
        if can_pack():
            assert torch.equal(logits(alone, [lane])[0], together[lane])


def test_the_cache_takes_half_of_the_memory(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    sizes = []
    for name in ("auto", "bfloat16"):
        runner: Any = load_native(tmp_path, dtype="float32", kv_dtype=name)
        runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
        sizes.append(runner._lanes.nbytes)
    assert sizes[0] == 2 * sizes[1] > 0
    assert (runner.spec.dtype, runner.spec.kv_dtype) == (torch.float32, torch.bfloat16)
    assert runner.first_layers(1, max_lanes=1).spec.kv_dtype == torch.bfloat16


def test_values_beyond_float16_stay_finite(tmp_path: Path) -> None:
    model = build_native("llama")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "v_proj" in name:
                weight.mul_(1e7)
    model.save_pretrained(tmp_path)
    runner = load_native(tmp_path, dtype="float32", kv_dtype="float16")
    assert runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),))).isfinite().all()


def test_what_saves_nothing_or_is_not_there_is_refused(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="`kv_dtype` is float32, but the model computes in bfloat16"):
        load_native(tmp_path, dtype="bfloat16", kv_dtype="float32")
    with pytest.raises(ModelError, match="`kv_dtype` is float16, but the model computes in bfloat16"):
        load_native(tmp_path, dtype="bfloat16", kv_dtype="float16")
    with pytest.raises(UsageError, match="No dtype is called 'half'"):
        load_native(tmp_path, kv_dtype="half")
    with pytest.raises(ModelError, match="`kv_dtype` is bfloat16, which takes gencli's own decoder"):
        load(ModelChoice("tiny", backend="transformers", kv_dtype="bfloat16"))
    with pytest.raises(UsageError, match="`kv_dtype` is float16, but the fake model knows only"):
        load(ModelChoice("fake", kv_dtype="float16"))
