"""What runs a model is chosen from its configuration, said, and can be asked for.

GPUs by name, and the time of work on them. The fake runner: a table, and a strict reading of the contract.
Logits are float32 whatever the format of the weights: rounded ones have exact ties at the top.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_work import GpuWork

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.backend import choose_backend
from gencli.models.gpus import GPUS, gpu_named, memory_named
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_buffers import ContractError
from gencli.models.model_runner import ModelRunner
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.decoder.test_decoder_layers import logits
from tests.models.native import load_native
from tests.models.tiny_models import build, build_native

LLAMA = build("llama").config.to_dict()
MAMBA = {"model_type": "mamba"}


def test_the_decoder_runs_what_it_knows_in_full() -> None:
    for options, config, is_native, reason in [
        ({"backend": "auto"}, LLAMA, True, "the decoder knows the family"),
        ({"backend": "native"}, LLAMA, True, "as asked"),
        ({"backend": "transformers"}, LLAMA, False, "as asked"),
        ({"backend": "auto"}, MAMBA, False, "models of type mamba are none of its families"),
        ({"backend": "auto"}, {**LLAMA, "more": 1}, False, "the configuration has 'more'"),
        ({"backend": "auto", "trust_remote_code": True}, LLAMA, False, "code of the model may run"),
        ({"backend": "auto", "is_spread": True}, LLAMA, False, "spread over several devices"),
    ]:
        with case(options, config, is_native, reason):
            spec, found = choose_backend(config=config, **options)
            assert (spec is not None) == is_native
            assert reason in found
    with pytest.raises(ModelError, match="own decoder cannot run this model: models of type mamba"):
        choose_backend("native", MAMBA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path)
    return tmp_path


def test_the_spec_says_what_was_loaded(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 9]}))
    spec = load_native(folder, dtype="bfloat16", backend="native: why").spec
    assert (spec.vocab_size, spec.context, spec.eos_ids) == (120, 1024, (3, 9))
    assert (spec.dtype, spec.dtype_reason, spec.backend) == (
        torch.bfloat16,
        "bfloat16: as asked",
        "native: why",
    )
    assert (spec.name, spec.can_rollback, spec.notices) == (str(folder), True, ())


def test_other_number_formats_give_about_the_same_logits(folder: Path) -> None:
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            step = StepPlan((Feed(0, 0, (5, 6, 7), 3),))
            exact = load_native(folder).forward(step)
            rounded = load_native(folder, dtype=str(dtype).removeprefix("torch.")).forward(step)
            assert rounded.dtype == torch.float32
            torch.testing.assert_close(rounded.float(), exact, atol=0.05 * float(exact.abs().max()), rtol=0)
    with pytest.raises(UsageError, match="No dtype is called 'int7'"):
        load_native(folder, dtype="int7")


def test_a_run_says_what_runs_its_model() -> None:
    assert load(ModelChoice("tiny")).runner.spec.backend == "native: the decoder knows the family"
    chosen = load(ModelChoice("tiny", backend="transformers")).runner.spec.backend
    assert chosen == "transformers: as asked"


GIB = 2**30


def test_a_gpu_is_found_by_its_name_and_by_what_a_driver_tells():
    for name, gpu in GPUS.items():
        assert gpu_named(name) is gpu_named(name.lower().replace(" ", "-")) is gpu, name
    told = {
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA H100 PCIe": "H100 PCIe",
        "NVIDIA H200": "H200",
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA A100-SXM4-40GB": "A100 40GB",
        "NVIDIA GeForce RTX 4090": "RTX 4090",
        "NVIDIA L40S": "L40S",
        "NVIDIA L4": "L4",
    }
    assert {name: gpu_named(name).name for name in told} == told


def test_memory_is_told_by_its_size_or_by_the_name_of_the_gpu():
    assert (
        memory_named("24GB") == memory_named("24 GiB") == memory_named("rtx 4090") == GPUS["RTX 4090"].memory
    )
    assert 23.6 * GIB < memory_named("24GB") < 23.7 * GIB
    for text in ("", "24", "TITAN X", "24GB of it", "NVIDIA L40", "RTX 4090 Laptop GPU"):
        with case(text), pytest.raises(UsageError, match="is not in the table of GPUs"):
            memory_named(text)


def test_work_is_bound_by_its_slowest_part_and_by_launches():
    gpu = GPUS["H200"]
    reads = GpuWork(4.8e9 * 0.9, kernels=0)
    assert reads.seconds(gpu) == pytest.approx(1e-3)
    assert GpuWork(4.8e9, kernels=0, float64=1e12).seconds(GPUS["RTX 4090"]) > 1
    assert GpuWork(0, kernels=100).seconds(gpu, is_graph=False) == pytest.approx(500e-6)
    assert GpuWork(0, kernels=100).seconds(gpu) == pytest.approx(330e-6)


FIRST_OF_SEED_7 = [1.6464473009109497, -1.4013984203338623, -1.0695080757141113]


def feed(runner: ModelRunner, *feeds: Feed) -> torch.Tensor:
    return runner.forward(StepPlan(feeds))


def test_rows_are_those_of_the_wanted_tokens_in_feed_order() -> None:
    runner = FakeRunner(vocab_size=11)
    logits = feed(runner, Feed(3, 0, (1, 2, 3), 2), Feed(0, 0, (4, 5), 0), Feed(1, 0, (6,)))
    expected = runner.table[[2, 3, 6]]
    assert torch.equal(logits, expected)
    logits.zero_()  # they are the caller's to edit
    assert torch.equal(runner.table[[2, 3, 6]], expected)


def test_the_table_is_the_same_everywhere() -> None:
    # Golden texts depend on these bits; integers and exact float32 sums only, so no platform differs.
    table = FakeRunner(vocab_size=300, seed=7).table
    assert table[0, :3].tolist() == FIRST_OF_SEED_7
    assert not torch.equal(table, FakeRunner(vocab_size=300, seed=8).table)


def test_the_table_is_bell_shaped_and_uncorrelated() -> None:
    table = FakeRunner(vocab_size=400, scale=3.0).table
    assert table.mean().item() == pytest.approx(0.0, abs=0.05)
    assert table.std().item() == pytest.approx(3.0, rel=0.02)
    assert torch.corrcoef(table[:100]).fill_diagonal_(0).abs().max() < 0.3  # 6 sigma of 1 / sqrt(400)


def test_lengths_follow_feed_keep_fork_and_release() -> None:
    runner = FakeRunner()
    feed(runner, Feed(0, 0, (1, 2, 3, 4), 0))
    runner.truncate(0, 2)
    runner.fork(0, 5)
    feed(runner, Feed(5, 2, (9,)))
    runner.release(0)
    assert [runner.length(lane) for lane in (0, 5)] == [0, 3]


def test_a_plan_that_breaks_the_contract_is_refused() -> None:
    for feeds, message in [
        ((), "at least one feed"),
        ((Feed(0, 0, ()),), "fed no token"),
        ((Feed(0, 1, (1,)),), "holds 0 tokens, the feed starts at 1"),
        ((Feed(0, 0, (1, 2), 3),), "3 rows wanted of 2"),
        ((Feed(0, 0, (1,)), Feed(0, 1, (1,))), "fed twice"),
        ((Feed(9, 0, (1,)),), "lane 9 is not one of 0..3"),
        ((Feed(0, 0, (1,) * 17),), "exceed the context of 16"),
    ]:
        with case(feeds, message):
            runner = FakeRunner(context=16, max_lanes=4)
            with pytest.raises(ContractError, match=message):
                feed(runner, *feeds)
            assert runner.length(0) == 0


def test_lane_calls_that_break_the_contract_are_refused() -> None:
    runner = FakeRunner(max_lanes=2)
    with pytest.raises(ContractError, match="cannot keep 1"):
        runner.truncate(0, 1)
    with pytest.raises(ContractError, match="onto itself"):
        runner.fork(1, 1)
    with pytest.raises(ContractError, match=r"not one of 0\.\.1"):
        runner.release(2)


def test_an_unknown_token_id_is_the_inputs_fault() -> None:
    for token in [-1, 11]:
        with case(token), pytest.raises(ModelError, match=f"Token id {token} is unknown"):
            feed(FakeRunner(vocab_size=11), Feed(0, 0, (token,)))


NARROW = (torch.bfloat16, torch.float16)


def check(runner: Any, case: object) -> None:
    for found in logits(runner, [0, 1]):
        assert found.dtype == torch.float32, case
        assert not any(torch.equal(found.to(dtype).float(), found) for dtype in NARROW), case


def test_no_format_of_the_weights_rounds_the_logits(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"dtype": "bfloat16"}, {"dtype": "float16"}]
    options += [{"quantize": "int8"}, {"quantize": "int4"}]
    for kind in ("llama", "gemma2"):  # of which the second has one matrix for both ends
        build_native(kind).save_pretrained(tmp_path / kind)
        for given in options:
            check(load_native(tmp_path / kind, **given), (kind, given))
        for dtype in ("bfloat16", "float16"):
            check(HFRunner.load(tmp_path / kind, dtype=dtype, device="cpu"), (kind, dtype))
