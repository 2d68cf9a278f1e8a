"""Compiled code in the user's cache, and what runs it."""

import subprocess
import sys
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


@pytest.mark.parametrize(
    ("release", "source", "reason"),
    [
        ("0.45.1", "", "llvmlite 0.45.1 is older than 0.46"),
        ("0.45rc1", "", "llvmlite 0.45rc1 is older than 0.46"),
        ("0.47.0", "", "llvmlite 0.47.0 cannot be loaded (No module named 'llvmlite.binding')"),
        ("0.99dev1", "raise OSError('no libLLVM')", "llvmlite 0.99dev1 cannot be loaded (no libLLVM)"),
    ],
)
def test_an_older_or_broken_llvmlite_is_not_used(
    tmp_path: Path, release: str, source: str, reason: str
) -> None:
    """Packages such as numba install an older one, whose LLVM refuses the code."""
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text(source)
    (tmp_path / f"llvmlite-{release}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: llvmlite\nVersion: {release}\n"
    (tmp_path / f"llvmlite-{release}.dist-info" / "METADATA").write_text(metadata)
    lines = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "from gencli.models.decoder.kernels.llvm_code import missing",
        "from gencli.models.decoder.products.product_maker import int4_kernel",
        "print(int4_kernel().kernel, missing(), sep=': ')",
    )
    made = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert made.stdout == f"int4pack: {reason}\n"
