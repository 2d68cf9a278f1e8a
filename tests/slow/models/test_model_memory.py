"""The planned memory of a model is what it takes; a model that cannot fit is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.dense_products import can_pack
from gencli.models.decoder.products.product_maker import KernelOptions
from gencli.models.device import pick_kv_dtype
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import lane_bytes, need_of, weight_bytes
from tests.models.cases import case
from tests.models.native import load_native
from tests.models.test_model_memory import CPU, parts
from tests.models.tiny_models import SUITE_KINDS, base, build_native
from tests.sham import sham_device


def test_weights_and_cache_take_what_is_planned(tmp_path: Path) -> None:
    for kind, dtype in product((*SUITE_KINDS, "biased"), ("float32", "bfloat16")):
        with case(kind, dtype):
            check_plan(tmp_path / f"{kind} {dtype}", kind, dtype)


def check_plan(tmp_path: Path, kind: str, dtype: str) -> None:
    build_native(kind).save_pretrained(tmp_path)
    card, runner = read_card(tmp_path), load_native(tmp_path, dtype=dtype, max_lanes=2)
    need = need_of(card, dtype=runner.spec.dtype, device=CPU, lanes=2, tokens=300)
    decoder = runner._decoder
    is_shared = decoder.spec.is_tied and not can_pack(runner.spec.dtype)  # embeddings are the projection too
    held = sum(parts(decoder)) - is_shared * decoder.embeddings.nbytes
    assert held == pytest.approx(need.weights, rel=0.05)
    for lane in range(2):
        runner.forward(StepPlan((Feed(lane, 0, (1,) * 300),)))
    assert cached(runner) == need.kv


def test_lanes_on_a_gpu_take_what_is_planned(tmp_path: Path) -> None:
    for kv_dtype, num_lanes, length in [
        ("auto", 1, 2100),
        ("auto", 3, 300),
        ("int8", 3, 300),
        ("fp8", 3, 300),
    ]:
        with case(kv_dtype, num_lanes, length):
            config = hf.LlamaConfig(**base(max_position_embeddings=4096, num_hidden_layers=1))
            hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
            with sham_device():
                runner = load_native(tmp_path, "cuda", kv_dtype=kv_dtype, max_lanes=num_lanes)
                runner.forward(StepPlan((Feed(0, 0, (1,) * length),)))
                for lane in range(1, num_lanes):
                    runner.fork(0, lane)
                runner.forward(StepPlan(tuple(Feed(lane, length, (1,)) for lane in range(num_lanes))))
                held = cached(runner)
            number = pick_kv_dtype(kv_dtype, runner.spec.dtype)
            assert held == lane_bytes(
                read_card(tmp_path), num_lanes, length + 1, number, torch.device("cuda")
            )


def cached(runner: DecoderRunner) -> int:
    lanes: Any = runner._lanes
    return int(getattr(lanes, "_inner", lanes).nbytes)


@pytest.mark.skipif(not can_pack(), reason="a plain projection is the embeddings")
def test_large_embeddings_are_not_held(tmp_path: Path) -> None:
    for is_tied, left in [(True, 0), (False, 1)]:
        with case(is_tied, left):
            size = {"vocab_size": 70_000, "hidden_size": 64, "tie_word_embeddings": is_tied}
            hf.LlamaForCausalLM(hf.LlamaConfig(**{**base(), **size})).save_pretrained(tmp_path)
            runner = load_native(tmp_path, dtype="float32", kernels=KernelOptions(kernel="packed"))
            weights = weight_bytes(read_card(tmp_path), torch.float32, CPU)
            assert sum(parts(runner._decoder)) == pytest.approx(weights, rel=0.05)
            assert read_card(tmp_path).weights.parameters * 4 - weights == left * 70_000 * 64 * 4
