"""Keys and values in half precision: half the memory, about the same logits, the same bits in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.dense_products import can_pack
from gencli.models.device import kv_name
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import lane_bytes
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.native import load_native, native_decoder
from tests.models.tiny_models import build_native
from tests.slow.models.decoder.test_invariance import LENGTHS, logits

# Largest errors of the logits; random weights enlarge them.
FORMATS = {torch.bfloat16: 0.02, torch.float16: 0.02, torch.float8_e4m3fn: 0.35, torch.int8: 0.03}


def check_logits(kind: str, kv_dtype: torch.dtype) -> None:
    """They are about the same, and lanes see no neighbours."""
    decoder = native_decoder(build_native(kind))
    exact = logits(DecoderRunner(decoder, max_lanes=len(LENGTHS)), list(range(len(LENGTHS))))
    runner = DecoderRunner(decoder, max_lanes=len(LENGTHS), kv_dtype=kv_dtype)
    together = logits(runner, list(range(len(LENGTHS))))
    for lane in (0, 2, 5):
        assert float((together[lane] - exact[lane]).norm() / exact[lane].norm()) < FORMATS[kv_dtype]
        alone = DecoderRunner(decoder, max_lanes=len(LENGTHS), kv_dtype=kv_dtype)
        if can_pack():
            assert torch.equal(logits(alone, [lane])[0], together[lane])


# Of the memory in float32; heads of 8 numbers have a scale of four bytes in int8.
SHARES = {"bfloat16": 0.5, "float16": 0.5, "fp8": 0.25, "int8": 12 / 32}


def test_the_cache_takes_a_share_of_the_memory(tmp_path: Path) -> None:
    for name in SHARES:
        with case(name):
            build_native("llama").save_pretrained(tmp_path)
            sizes = []
            for kind in ("auto", name):
                runner: Any = load_native(tmp_path, dtype="float32", kv_dtype=kind)
                runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
                sizes.append(runner._lanes.nbytes)
                assert sizes[-1] == lane_bytes(
                    read_card(tmp_path), 1, 3, runner.spec.kv_dtype, torch.device("cpu")
                )
            assert sizes[1] == SHARES[name] * sizes[0]
            assert (runner.spec.dtype, kv_name(runner.spec.kv_dtype)) == (torch.float32, name)
            assert kv_name(runner.first_layers(1, max_lanes=1).spec.kv_dtype) == name


def test_lanes_are_copied_cut_and_emptied_as_in_float32(tmp_path: Path) -> None:
    for name in ["fp8", "int8"]:
        with case(name):
            build_native("llama").save_pretrained(tmp_path)
            runner = load_native(tmp_path, dtype="float32", kv_dtype=name, max_lanes=3)
            prompt, more = tuple(range(20)), Feed(0, 300, (7,), 1)
            runner.forward(StepPlan((Feed(0, 0, prompt * 15),)))  # more than a buffer's first size
            runner.fork(0, 1)
            expected = runner.forward(StepPlan((more,)))
            assert torch.equal(runner.forward(StepPlan((more._replace(lane=1),))), expected)
            runner.truncate(0, 300)
            assert torch.equal(runner.forward(StepPlan((more,))), expected)
            runner.release(0)
            runner.forward(StepPlan((Feed(2, 0, prompt * 15),)))  # takes the row that is free again
            assert torch.equal(runner.forward(StepPlan((more._replace(lane=2),))), expected)


def test_large_values_stay_finite(tmp_path: Path) -> None:
    for name in ["float16", "fp8", "int8"]:
        with case(name):
            model = build_native("llama")
            with torch.no_grad():
                for key, weight in model.named_parameters():
                    if "v_proj" in key:
                        weight.mul_(1e7)
            model.save_pretrained(tmp_path)
            runner = load_native(tmp_path, dtype="float32", kv_dtype=name)
            assert runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),))).isfinite().all()


def test_what_saves_nothing_or_is_not_there_is_refused(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="`kv_dtype` is float32, but the model computes in bfloat16"):
        load_native(tmp_path, dtype="bfloat16", kv_dtype="float32")
    with pytest.raises(ModelError, match="`kv_dtype` is float16, but the model computes in bfloat16"):
        load_native(tmp_path, dtype="bfloat16", kv_dtype="float16")
    with pytest.raises(UsageError, match="No format of keys and values is called 'half'"):
        load_native(tmp_path, kv_dtype="half")
    assert load_native(tmp_path, dtype="bfloat16", kv_dtype="int8").spec.kv_dtype == torch.int8
    with pytest.raises(ModelError, match="`kv_dtype` is bfloat16, which takes gencli's own decoder"):
        load(ModelChoice("tiny", backend="transformers", kv_dtype="bfloat16"))
    with pytest.raises(UsageError, match="`kv_dtype` is float16, but the fake model knows only"):
        load(ModelChoice("fake", kv_dtype="float16"))
