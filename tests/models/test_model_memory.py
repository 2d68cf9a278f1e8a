"""The planned memory of a model is what it takes; a model that cannot fit is refused.

The token budget of a step leaves room for its temporary memory. What fits a card: the largest batch and
length are the last that fit, and smaller formats take more. A model over several devices: split over two
processes it writes what it writes in one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.cli.app import main
from gencli.errors import ModelError, UsageError
from gencli.models.backend import Spread, check_plan
from gencli.models.decoder.decoder_layers import Embeddings
from gencli.models.decoder.products.dense_products import Product
from gencli.models.device import free_memory
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import Card, Weights, read_card
from gencli.models.kv.lane_buffers import LaneLengths
from gencli.models.kv.model_calls import OwnCacheLanes
from gencli.models.kv.shared_cache import choose_lanes
from gencli.models.model_memory import (
    CONTEXT_BYTES,
    card_fits,
    check_fit,
    lane_bytes,
    plan_chunk,
    row_bytes,
    weight_bytes,
)
from gencli.models.model_runner import ModelSpec
from tests.models.cases import case
from tests.models.tiny_models import base, build_native

CPU = torch.device("cpu")


def parts(value: Any) -> Iterator[int]:
    """The bytes of all weights in a decoder, as they lie in memory."""
    if isinstance(value, torch.Tensor | Product | Embeddings):
        yield value.nbytes
    elif isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif is_dataclass(value):
        for each in fields(value):
            if each.name not in ("spec", "tables"):
                yield from parts(getattr(value, each.name))


def huge(folder: Path) -> Any:
    build_native("llama").save_pretrained(folder)
    return replace(read_card(folder), weights=Weights(2**33, 2**31, "F32"))


def test_a_model_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    for free, hint in [
        (2**32 + 2**20, "`dtype` = bfloat16 (4.0 GiB) or `quantize` = int8 (2.1 GiB) or `quantize` = int4"),
        (2**31, "`quantize` = int4 (1.3 GiB) fits; `memory_check` = off tries anyway"),
        (2**30, "A smaller model fits"),
    ]:
        with case(free, hint):
            card = huge(tmp_path)
            with pytest.raises(
                ModelError, match=r"needs 8.0 GiB .* float32 .* has [124].0 GiB free"
            ) as found:
                check_fit(card, torch.float32, CPU, free)
            assert hint in (found.value.hint or "")
            check_fit(card, torch.float32, CPU, 2**33 + 2**20)
            check_fit(card, torch.float32, CPU, None)


def test_a_card_that_is_too_small_is_told_which_codes_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs 4.0 GiB .* bfloat16 .* cuda has 2.5 GiB free") as found:
        check_fit(huge(tmp_path), torch.bfloat16, torch.device("cuda"), 5 * 2**29)
    assert (found.value.hint or "").startswith(
        "`quantize` = int8 (2.1 GiB) or `quantize` = int4 (1.3 GiB) fits"
    )


def group(folder: Path, **values: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def test_free_memory_is_the_least_of_the_machine_and_the_groups(tmp_path: Path) -> None:
    group(tmp_path / "proc/self", cgroup="0::/a/b")
    group(tmp_path / "proc", meminfo="MemTotal: 9 kB\nMemAvailable:    1000 kB")
    assert free_memory(CPU, tmp_path) == 1_024_000
    stat = "anon 5\nactive_file 100\ninactive_file 50\n"
    group(tmp_path / "sys/fs/cgroup/a/b", memory__max="max", memory__current=4, memory__stat=stat)
    assert free_memory(CPU, tmp_path) == 1_024_000
    group(tmp_path / "sys/fs/cgroup/a", memory__max=9000, memory__current=4000, memory__stat=stat)
    assert free_memory(CPU, tmp_path) == 9000 - 4000 + 150
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/x\n1:name=y:/x\n")
    assert free_memory(CPU, tmp_path) == 1_024_000
    group(
        tmp_path / "sys/fs/cgroup/memory/x",
        memory__limit_in_bytes=7000,
        memory__usage_in_bytes=6000,
        memory__stat="active_file 7\ntotal_active_file 100\ntotal_inactive_file 50",
    )
    assert free_memory(CPU, tmp_path) == 1150


def test_this_machine_says_what_is_free(tmp_path: Path) -> None:
    for free in (free_memory(CPU), free_memory(CPU, tmp_path)):  # the second without files of the kernel
        assert free is None or free > 2**20


GIB = 2**30


def spec(token_bytes: int) -> ModelSpec:
    """A model of 128k ids in bfloat16."""
    return ModelSpec("m", 2**17, 2**15, torch.device("cuda", 0), torch.bfloat16, token_bytes=token_bytes)


def test_a_step_takes_fewer_tokens_where_little_memory_is_free() -> None:
    model = spec(2**20)  # 512 tokens take half a GiB
    found = {free: plan_chunk(model, free * GIB // 4, rows=8, limit=512) for free in (1, 2, 4, 8, 16, 100)}
    assert [*found.values()] == sorted(found.values())
    for free, tokens in found.items():
        if tokens > 64:
            step = tokens * 2**20 + 8 * row_bytes(2**17, torch.bfloat16)
            assert step <= 0.2 * free * GIB // 4 + 2**20
    assert (found[1], found[100]) == (64, 512)
    assert 64 < found[8] < 512


def test_every_sequence_still_decodes_and_an_unknown_model_keeps_the_default() -> None:
    assert plan_chunk(spec(2**20), 0, rows=100, limit=512) == 200
    assert plan_chunk(spec(0), 0, rows=8, limit=512) == 512
    assert plan_chunk(spec(2**20), None, rows=8, limit=512) == 512


CUDA = torch.device("cuda")


def card_of(folder: Path, **changes: object) -> Card:
    """A model with weights of 16 GiB in bfloat16, and keys and values of 2^17 numbers a token."""
    build_native("llama").save_pretrained(folder)
    found = read_card(folder)
    large = {"weights": Weights(16 * GIB, 8 * GIB, "BF16"), "kv_values": 2**17, "context": 2**15}
    return replace(found, **(large | changes))  # type: ignore[arg-type]


def test_the_largest_batch_and_length_are_the_last_that_fit(tmp_path: Path) -> None:
    card = card_of(tmp_path)
    for fit in card_fits(card, 24 * GIB, batch=2, tokens=4096):
        left = 24 * GIB - CONTEXT_BYTES - fit.need.weights - fit.need.step
        assert fit.max_batch is not None
        lanes = [lane_bytes(card, fit.max_batch + more, 4096, fit.kv_dtype, CUDA) or 0 for more in (0, 1)]
        assert lanes[0] <= left
        assert lanes[1] > left or fit.max_batch == 256
        assert fit.max_context is not None
        lanes = [lane_bytes(card, 2, fit.max_context + more, fit.kv_dtype, CUDA) or 0 for more in (0, 256)]
        assert lanes[0] <= left
        assert lanes[1] > left or fit.max_context == card.context
        assert fit.fits == (fit.max_batch >= 2)


def test_narrow_formats_leave_room_for_more(tmp_path: Path) -> None:
    found = card_fits(card_of(tmp_path), 24 * GIB, batch=1, tokens=8192)
    fits = {(one.quantize, one.kv_dtype): one for one in found}
    order = [("none", torch.bfloat16), ("none", torch.int8), ("int8", torch.bfloat16)]
    order += [("int4", torch.bfloat16), ("int4", torch.float8_e4m3fn)]
    batches = [fits[key].max_batch for key in order]
    assert batches == sorted(batches)  # type: ignore[type-var]
    assert len(fits) == 9
    assert len(set(batches)) == 5


def test_what_does_not_fit_has_room_for_no_text_and_lengths_of_a_state_are_unknown(tmp_path: Path) -> None:
    exact, *_, narrow = card_fits(card_of(tmp_path), 7 * GIB, batch=1, tokens=1024)
    assert (exact.fits, exact.max_batch, exact.max_context) == (False, 0, 0)
    assert narrow.fits
    (fit,) = card_fits(card_of(tmp_path, spec=None, kv_values=None), 24 * GIB, batch=1, tokens=1024)
    assert (fit.fits, fit.lane, fit.max_batch, fit.max_context) == (True, None, None, None)


def test_the_ends_of_a_model_of_four_bits_have_eight(tmp_path: Path) -> None:
    for is_tied in [True, False]:
        with case(is_tied):
            card = card_of(tmp_path)
            assert card.spec is not None
            spec = replace(card.spec, vocab_size=2**17, hidden=2**12, is_tied=is_tied)
            ends = 2**29 * (1 if is_tied else 2)
            need = weight_bytes(replace(card, spec=spec), torch.bfloat16, CUDA, "int4")
            assert need == (8 * GIB - ends) * 5 // 8 + ends


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of four heads with the bundled model's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    made, tiny = tmp_path_factory.mktemp("llama"), bundled_folder("tiny")
    size = json.loads((tiny / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**base(vocab_size=size))).save_pretrained(made)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, made)
    return made


def test_layers_placed_by_accelerate_write_the_same(folder, capfd):
    pytest.importorskip("accelerate")
    command = ["run", "--model", str(folder), "--seed", "3", "--max-tokens", "12", "-q", "The fox"]
    assert main(command) == 0
    plain = capfd.readouterr().out
    assert main([*command, "--device-map", "auto"]) == 0
    assert capfd.readouterr().out == plain


def test_lanes_of_a_model_on_several_devices_have_caches_of_their_own(folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    model.hf_device_map = {"model": 0, "lm_head": 1}
    lanes, notices, _ = choose_lanes(model, LaneLengths(max_lanes=2, context=16, num_ids=9))
    assert isinstance(lanes, OwnCacheLanes)
    assert "several devices" in notices[0]


def test_what_does_not_go_together_is_refused():
    for spread, device, message in [
        (Spread(tp=2), "auto", "`tp` = 2 needs 2 processes; there is 1"),
        (Spread("auto", 2), "auto", "`tp` and `device_map` both spread the model"),
        (Spread("auto"), "cuda:1", "`device` = cuda:1 names one device, and `device_map` takes several"),
        (Spread(tp=2), "cpu", "`device` = cpu names one device, and `tp` takes several"),
    ]:
        with case(spread, device, message), pytest.raises(UsageError, match=message):
            spread.check(device)


def test_one_process_says_how_to_start_several(capfd):
    assert main(["run", "--model", "fake", "--tp", "2", "a"]) == 2
    assert "torchrun --nproc-per-node 2 -m gencli" in capfd.readouterr().err


def test_without_accelerate_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("gencli.models.backend.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs accelerate") as caught:
        Spread("auto").check("auto")
    assert "gencli[multi-gpu]" in caught.value.hint


def test_an_architecture_that_cannot_be_split_is_refused():
    from transformers import GPT2Config, LlamaConfig

    with pytest.raises(ModelError, match="no plan for splitting gpt2"):
        check_plan(GPT2Config(), 2)
    with pytest.raises(ModelError, match=r"5 heads \(num_attention_heads\), which 2 processes cannot share"):
        check_plan(LlamaConfig(hidden_size=20, num_attention_heads=5, num_key_value_heads=5), 2)
    check_plan(LlamaConfig(num_attention_heads=4, num_key_value_heads=2), 2)
