"""Headers of safetensors files are read without PyTorch; one that lies is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gencli.errors import ModelError
from gencli.models.files.model_files import read_table
from tests.models.cases import case
from tests.models.files.test_tensors import F32, write


def test_a_tensor_is_where_the_header_says(tmp_path: Path) -> None:
    second = {"dtype": "F4", "shape": [2, 3], "data_offsets": [24, 27]}  # a format that is not known
    path = write(tmp_path / "x", {"second": second, "first": F32}, 27)
    first, last = read_table([path]).values()
    assert (first.name, first.format, first.shape, first.nbytes) == ("first", "F32", (2, 3), 24)
    assert (last.name, last.count, last.nbytes, last.start) == ("second", 6, 3, first.start + 24)


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    for change, reason in [
        ({"data_offsets": [0, 20]}, "its shape needs 24"),
        ({"data_offsets": [-8, 16]}, "has no offsets"),
        ({"data_offsets": [24, 0]}, "has no offsets"),
        ({"data_offsets": [0.0, 24.0]}, "has no offsets"),
        ({"data_offsets": None}, "has no offsets"),
        ({"data_offsets": [32, 56]}, "the end of the file"),
        ({"data_offsets": [12, 36]}, "overlaps"),
        ({"shape": [2**62, 2**62]}, "its shape needs"),
    ]:
        with case(change, reason):
            path = write(
                tmp_path / "x", {"first": {**F32}, "second": {**F32, "data_offsets": [24, 48], **change}}
            )
            with pytest.raises(ModelError, match=f"x is damaged: second .*{reason}"):
                read_table([path])
