"""Every Triton kernel compiles for the GPUs that people have, and does not outgrow them. No GPU is needed.

Triton's interpreter accepts what its compiler refuses, so right values alone say nothing about a GPU. What
has its digest in the table was compiled when the table was written (test_digests.py).
"""

import pytest

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")

from tests.compiled.aot import FOLDER, TARGETS, builds, kernel_files, kernel_modules, known, taken

MODULES = kernel_modules()
BUILDS = [(module, name) for module in MODULES for name in builds(module)]


def test_every_kernel_has_a_build_or_serves_one():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MODULES)
    for module, kernels in MODULES.items():
        built = {build["kernel"] for build in builds(module).values()}
        assert built <= set(kernels)
        assert all(name in built or name.startswith("_of_") for name in kernels), module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("module", "name"), BUILDS, ids=[f"{m.split('.')[-1]}-{n}" for m, n in BUILDS])
def test_a_kernel_compiles_for_the_gpu_and_takes_no_more_of_it(module, name, target, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    build = builds(module)[name]
    found = known(module, build, target) or taken(module, build, target)
    most = build["limits"][str(target)]
    assert all(one <= limit for one, limit in zip(found, most, strict=True)), (found, most)


def test_no_kernel_looks_again_at_what_other_programs_change():
    # Each warp would do so by itself, and some would take another branch. What an atomic returns is shared.
    for path in kernel_files():
        assert "volatile" not in path.read_text(encoding="utf-8"), path.name
