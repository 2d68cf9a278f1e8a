"""Every Triton kernel compiles for the GPUs that people have, and does not outgrow them. No GPU is needed.

Triton's interpreter accepts what its compiler refuses, so right values alone say nothing about a GPU. What
has its digest in the table was compiled when the table was written (test_digests.py).
"""

import pytest

from tests.compiled.aot import TARGETS
from tests.slow.compiled.test_compiled import BUILT, H100, outgrown

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


@pytest.mark.parametrize("module", BUILT)
def test_kernels_compile_for_other_gpus_and_take_no_more_of_them(module, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert outgrown(module, [target for target in TARGETS if target != H100]) == {}
