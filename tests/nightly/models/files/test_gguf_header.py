"""Damaged and hostile files end in our errors, and soon.

A GGUF file runs as the model it was converted from.
"""

from pathlib import Path

import pytest

from gencli.models.files.gguf_header import KINDS
from tests.models.files.test_gguf_header import (
    CONFIGS,
    check_quantized,
    check_slices,
    check_wrong_bytes,
    whole,
)
from tests.slow.models.files.test_gguf_header import SUITE, check_file


def test_many_files_with_wrong_bytes_load_or_are_refused(tmp_path: Path, whole: bytes) -> None:
    check_wrong_bytes(tmp_path / "model.gguf", whole, count=300, seed=1)


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind not in SUITE])
def test_a_file_of_any_other_model_says_what_its_original_says(tmp_path: Path, kind: str) -> None:
    check_file(tmp_path, kind)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q6_K"])
def test_other_quantized_weights_run_as_their_widened_numbers(tmp_path: Path, kind: str) -> None:
    check_quantized(tmp_path, kind)


@pytest.mark.parametrize("kind", [one.name for one in KINDS.values() if one.is_quantized])
def test_every_format_is_read_in_slices(tmp_path: Path, kind: str) -> None:
    check_slices(tmp_path, kind)
