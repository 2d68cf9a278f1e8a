"""Every Triton kernel compiles for the GPUs that people have, and does not outgrow them. No GPU is needed.

Triton's interpreter accepts what its compiler refuses, so right values alone say nothing about a GPU. What
has its digest in the table was compiled when the table was written (test_digests.py).
"""

import pytest

from tests.compiled.aot import FOLDER, MAX_REGISTERS, SHARED_KIB, builds, kernel_files, kernel_modules

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


MODULES = kernel_modules()


def test_every_kernel_has_a_build_or_serves_one():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MODULES)
    for module, kernels in MODULES.items():
        built = {build["kernel"] for build in builds(module).values()}
        assert built <= set(kernels)
        assert all(name in built or name.startswith("_of_") for name in kernels), module


def test_the_limits_are_within_what_a_gpu_has():
    for module in MODULES:
        for name, build in builds(module).items():
            for target, (registers, _, shared) in build["limits"].items():
                assert registers <= MAX_REGISTERS, (module, name, target)
                assert shared <= SHARED_KIB[int(target)] * 1024, (module, name, target)


def test_no_kernel_looks_again_at_what_other_programs_change():
    # Each warp would do so by itself, and some would take another branch. What an atomic returns is shared.
    for path in kernel_files():
        assert "volatile" not in path.read_text(encoding="utf-8"), path.name
