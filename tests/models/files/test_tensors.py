"""Tensors are read from safetensors files by their offsets; a header that lies is refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gencli.errors import ModelError
from gencli.models.decoder.weight_readers import open_tensors
from gencli.models.files.model_files import read_table
from tests.models.cases import case

F32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(path: Path, head: dict[str, Any], size: int = 48) -> Path:
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(size)))
    return path


def read(path: Path, name: str, dtype: torch.dtype) -> tuple[torch.Tensor, list[int]]:
    counted: list[int] = []
    with open_tensors(read_table([path])) as files:
        target = torch.empty(files.tensors[name].shape, dtype=dtype)
        files.read_into(name, target, counted.append)
    return target, counted


def test_tensors_are_read_and_converted(tmp_path: Path) -> None:
    for stored, wanted in product(
        [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8],
        [torch.float32, torch.bfloat16],
    ):
        with case(stored, wanted):
            given = torch.randn(70, 11).mul(50).to(stored)
            save_file({"a": torch.ones(3), "b": given, "none": torch.empty(0, 4)}, tmp_path / "x.safetensors")
            found, counted = read(tmp_path / "x.safetensors", "b", wanted)
            assert torch.equal(found, given.to(wanted))
            assert counted == [given.nbytes]
            assert read(tmp_path / "x.safetensors", "none", wanted)[0].shape == (0, 4)


def test_large_tensors_are_read_in_pieces_by_several_threads(tmp_path: Path) -> None:
    given = torch.arange(5_000_001, dtype=torch.int32)
    save_file({"a": given}, tmp_path / "x.safetensors")
    found, counted = read(tmp_path / "x.safetensors", "a", torch.int32)
    assert torch.equal(found, given)
    assert sum(counted) == given.nbytes
    assert len(counted) > 1


def test_an_unknown_number_format_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {"a": {**F32, "dtype": "F31"}})
    with pytest.raises(ModelError, match="a has the number format 'F31', which is unknown"):
        read(path, "a", torch.float32)


def test_a_file_that_becomes_shorter_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {"a": F32})
    with open_tensors(read_table([path])) as files:
        path.write_bytes(b"")
        with pytest.raises(ModelError, match="ends within a tensor"):
            files.read_into("a", torch.empty(2, 3), lambda count: None)
