"""Every Triton kernel compiles for the GPUs that people have, and does not outgrow them. No GPU is needed.

Triton's interpreter accepts what its compiler refuses, so right values alone say nothing about a GPU. What
has its digest in the table was compiled when the table was written (test_digests.py).
"""

import pytest

from tests.compiled.aot import builds, known, taken
from tests.compiled.test_compiled import MODULES

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


BUILT = [module for module in MODULES if builds(module)]


H100 = 90  # the target that each push looks at; the others have their night


@pytest.mark.parametrize("module", BUILT)
def test_kernels_compile_for_an_h100_and_take_no_more_of_it(module, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert outgrown(module, [H100]) == {}


def outgrown(module, targets):
    """What builds of a module take of these GPUs, and what they may, by build and GPU; where it is more."""
    more = {}
    for name, build in builds(module).items():
        for target in targets:
            found = known(module, build, target) or taken(module, build, target)
            most = build["limits"][str(target)]
            if any(one > limit for one, limit in zip(found, most, strict=True)):
                more[name, target] = found, most
    return more
