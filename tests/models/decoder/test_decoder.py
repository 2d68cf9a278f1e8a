"""A decoder that several threads read is the one that one thread reads.

Embeddings are the rows of a matrix, held in memory or left in the file. Keys and values in half precision:
half the memory, about the same logits, the same bits in any company.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import product, starmap
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.decoder import Decoder, DecoderRunner, read_decoder
from gencli.models.decoder.decoder_layers import HeldEmbeddings
from gencli.models.decoder.products.dense_products import PlainProduct, can_pack
from gencli.models.decoder.products.product_maker import ProductMaker
from gencli.models.decoder.weight_readers import StoredEmbeddings, open_tensors
from gencli.models.device import kv_name
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.files.model_card import read_card
from gencli.models.files.model_files import read_table
from gencli.models.model_memory import lane_bytes
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.native import checkpoint_of, load_native, native_decoder
from tests.models.tiny_models import VOCAB, build, build_native

CPU = torch.device("cpu")


def read(checkpoint: Checkpoint, workers: int) -> tuple[Decoder, list[tuple[int, int]]]:
    """Return a decoder, and the bytes that were told while it was read."""
    told: list[tuple[int, int]] = []
    decoder, unused = read_decoder(
        checkpoint,
        make=ProductMaker(PlainProduct),
        dtype=torch.float32,
        device=CPU,
        on_bytes=lambda done, total: told.append((done, total)),
        workers=workers,
    )
    assert unused == []
    return decoder, told


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the weights of a decoder in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, PlainProduct | HeldEmbeddings):
        yield value._weight
    elif isinstance(value, tuple):
        for one in value:
            yield from tensors(one)
    elif is_dataclass(value):
        for each in fields(value):
            yield from tensors(getattr(value, each.name))


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "gpt_oss"])
def test_the_number_of_threads_changes_nothing(tmp_path: Path, kind: str) -> None:
    build_native(kind).save_pretrained(tmp_path)
    before, (alone, _) = torch.get_num_threads(), read(checkpoint_of(tmp_path), 1)
    for workers in (2, 3):
        decoder, told = read(checkpoint_of(tmp_path), workers)
        assert all(starmap(torch.equal, zip(tensors(decoder), tensors(alone), strict=True)))
        assert told[0][0] == 0
        assert told[-1][0] == told[-1][1] == sum(one.nbytes for one in checkpoint_of(tmp_path).table.values())
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert torch.get_num_threads() == before


def test_a_fault_in_a_layer_is_the_error(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    checkpoint = checkpoint_of(tmp_path)
    cut = {name: stored for name, stored in checkpoint.table.items() if "layers.1.mlp.up" not in name}
    lacking = Checkpoint(
        tmp_path, checkpoint.config, checkpoint.files, cut, checkpoint.weights, checkpoint.spec
    )
    with pytest.raises(ModelError, match=r"lacks the weights model\.layers\.1\.mlp\.up_proj"):
        read_decoder(lacking, make=ProductMaker(PlainProduct), dtype=torch.float32, device=CPU, workers=2)


IDS = torch.tensor([3, 0, 3, 49])


def stored(folder: Path, matrix: torch.Tensor, dtype: torch.dtype) -> StoredEmbeddings:
    save_file({"other": torch.ones(5), "e": matrix}, folder / "x.safetensors")
    with open_tensors(read_table([folder / "x.safetensors"])) as files:
        return StoredEmbeddings(files.tensors["e"], files.open("e"), dtype)


def test_rows_in_the_file_equal_rows_in_memory(tmp_path: Path) -> None:
    for kind, dtype in product([torch.float32, torch.bfloat16], [torch.float32, torch.bfloat16]):
        with case(kind, dtype):
            matrix = torch.randn(50, 6).to(kind)
            held, left = HeldEmbeddings(matrix.to(dtype)), stored(tmp_path, matrix, dtype)
            assert torch.equal(left(IDS), held(IDS))
            assert left(IDS).dtype == dtype
            assert (left.dtype, left.device, left.nbytes) == (held.dtype, held.device, 0)


def test_a_removed_file_is_still_read_and_a_cut_one_refused(tmp_path: Path) -> None:
    matrix = torch.randn(50, 6)
    left = stored(tmp_path, matrix, torch.float32)
    (tmp_path / "x.safetensors").rename(tmp_path / "y")
    assert torch.equal(left(IDS), matrix[IDS])
    (tmp_path / "y").write_bytes(b"")
    with pytest.raises(ModelError, match="ends within a tensor"):
        left(IDS)


LENGTHS = (20, 20, 5, 9, 33, 2, 60, 17)
_DRAW = torch.Generator().manual_seed(3)
LANE_PROMPTS = [torch.randint(0, VOCAB, (length,), generator=_DRAW).tolist() for length in LENGTHS]
STEPS = 4


def logits(runner: DecoderRunner, lanes: list[int]) -> list[torch.Tensor]:
    """The logits of each lane behind its prompt and after some more tokens, [STEPS + 1, V]."""
    rows = [runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(LANE_PROMPTS[lane])) for lane in lanes)))]
    for step in range(STEPS):
        feeds = tuple(Feed(lane, LENGTHS[lane] + step, (lane + step,)) for lane in lanes)
        rows.append(runner.forward(StepPlan(feeds)))
    return [torch.stack([row[index] for row in rows]) for index in range(len(lanes))]


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
