"""Compiled code in the user's cache."""

from pathlib import Path

import pytest

from gencli.models.decoder.kernels import llvm_code
from gencli.models.decoder.kernels.attention_llvm import AttentionSource
from gencli.models.decoder.kernels.llvm_code import compiled
from tests.models.cases import case

pytestmark = pytest.mark.skipif(llvm_code.missing() is not None, reason=f"{llvm_code.missing()}")


def test_a_damaged_file_of_the_cache_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM would end the process where it loads one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled(AttentionSource(16))
    (path,) = (tmp_path / "gencli" / "kernels").iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], bytes(len(whole)), whole[32:]):
        with case(len(damaged)):
            path.write_bytes(damaged)
            compiled(AttentionSource(16))
            assert path.read_bytes() == whole
