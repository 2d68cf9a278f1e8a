"""Damaged and hostile files end in our errors, and soon."""

from pathlib import Path

from tests.models.gguf.test_head import check_wrong_bytes, whole


def test_many_files_with_wrong_bytes_load_or_are_refused(tmp_path: Path, whole: bytes) -> None:
    check_wrong_bytes(tmp_path / "model.gguf", whole, count=300, seed=1)
