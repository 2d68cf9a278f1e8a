"""Embeddings are the rows of a matrix, held in memory or left in the file."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gencli.errors import ModelError
from gencli.models.decoder.weight_readers import HeldEmbeddings, StoredEmbeddings, open_tensors
from gencli.models.files.model_files import read_table
from tests.models.cases import case

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
