"""A decoder that several threads read is the one that one thread reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.decoder.decoder import Decoder, read_decoder
from gencli.models.decoder.products.dense_products import PlainProduct
from gencli.models.decoder.products.product_maker import ProductMaker
from gencli.models.decoder.weight_readers import HeldEmbeddings
from gencli.models.files.checkpoint import Checkpoint
from tests.models.native import checkpoint_of
from tests.models.tiny_models import build, build_native

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
