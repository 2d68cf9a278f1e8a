"""What the table says of a kernel holds while its digest does: all that decides over its code is in it."""

import sys
from itertools import count

import pytest
import triton
from triton.backends.nvidia.compiler import get_ptxas_version

from tests.compiled.aot import digest

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


CODE = """
import triton
import triton.language as tl

OPTIONS = {"enable_fp_fusion": False}
WIDTH = tl.constexpr(64)


@triton.jit
def _of_kernel(x):
    return x + 1


@triton.jit
def _kernel(values, width, SIGN: tl.constexpr):
    # each value
    places = tl.arange(0, WIDTH)
    x = tl.load(values + places, mask=places < width, other=0)
    tl.store(values + places, _of_kernel(x) * SIGN, mask=places < width)
"""


BUILD = {
    "kernel": "_kernel",
    "signature": {"values": "*fp32", "width": "i32"},
    "constants": {"SIGN": -1},
    "limits": {"80": [16, 0, 0], "90": [16, 0, 0]},
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of this code, each time in another folder, and say its name, always the same."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    folders = (tmp_path / str(number) for number in count())

    def write(code):
        folder = next(folders)
        folder.mkdir()
        (folder / "kernels_here.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop("kernels_here", None)
        return "kernels_here"

    yield write
    sys.modules.pop("kernels_here", None)


def test_the_same_code_elsewhere_has_the_same_digest(module):
    elsewhere = CODE.replace("each value", "every value, however many there are").replace("\n\n\n", "\n" * 9)
    assert digest(module(CODE), BUILD, 80) == digest(module(elsewhere), BUILD, 80)


OTHER_BUILDS = [
    {"signature": {"values": "*bf16", "width": "i32"}},
    {"signature": {"values": "*fp32", "width": "i64"}},
    {"constants": {"SIGN": 1}},
    {"options": {"num_stages": 5}},
    {"limits": {"80": [17, 0, 0]}},
]


def test_another_build_has_another_digest(module):
    for change in OTHER_BUILDS:
        name = module(CODE)
        assert digest(name, BUILD, 80) != digest(name, BUILD | change, 80), change


def test_another_gpu_has_another_digest(module):
    name = module(CODE)
    assert digest(name, BUILD, 80) != digest(name, BUILD, 90)


def test_another_compiler_has_another_digest(module, monkeypatch):
    name = module(CODE)
    found = {digest(name, BUILD, 80)}
    monkeypatch.setattr(triton, "__version__", "1.2.3")
    found.add(digest(name, BUILD, 80))
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    found.add(digest(name, BUILD, 80))
    monkeypatch.setenv("TRITON_MOCK_PTX_VERSION", "9.9")
    get_ptxas_version.cache_clear()
    found.add(digest(name, BUILD, 80))
    get_ptxas_version.cache_clear()
    assert len(found) == 4
