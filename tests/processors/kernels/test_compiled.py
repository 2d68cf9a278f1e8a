"""Every Triton kernel compiles for the GPUs that people have, and does not outgrow them. No GPU is needed.

Triton's interpreter accepts what its compiler refuses, so right values alone say nothing about a GPU.
"""

import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")
compiler = pytest.importorskip("triton.compiler")
GPUTarget = pytest.importorskip("triton.backends.compiler").GPUTarget

ROOT = Path(__file__).parents[3]
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ALIGNED = [["tt.divisibility", 16]]  # what a launch finds of most pointers and widths

SIGNATURES = {
    "bitmask_triton": {
        "logits": "*fp32", "masks": "*i32", "width": "i32", "logits_stride": "i32", "masks_stride": "i32",
    },
    "token_probability_triton": {
        "logits": "*fp32", "ids": "*i64", "at": "*i64", "found": "*fp32", "width": "i32", "stride": "i32",
    },
}  # fmt: skip
# Registers of a thread with any arguments and with aligned ones, and bytes of shared memory of a program, as
# Triton 3.9 compiles the kernels for compute capability 8.0 (A100), 8.9 (RTX 40), 9.0 (H100, H200), 10.0
# (B200) and 12.0 (RTX 50). A kernel that comes to need more fails here; raise a number only for a reason.
LIMITS = {
    ("bitmask_triton", 80): (52, 46, 0),
    ("bitmask_triton", 89): (48, 48, 0),
    ("bitmask_triton", 90): (40, 48, 0),
    ("bitmask_triton", 100): (40, 48, 0),
    ("bitmask_triton", 120): (40, 47, 0),
    ("token_probability_triton", 80): (121, 108, 16),
    ("token_probability_triton", 89): (123, 106, 16),
    ("token_probability_triton", 90): (123, 106, 16),
    ("token_probability_triton", 100): (126, 120, 16),
    ("token_probability_triton", 120): (130, 140, 16),
}


def kernels():
    """The functions that Triton compiles, by the last name of their module."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in ROOT.glob("[gp]*/**/*.py"))
    paths = [path.relative_to(ROOT) for path, text in texts if "@triton.jit" in text]
    modules = {path.stem: import_module(".".join(path.with_suffix("").parts)) for path in paths}
    return {
        name: (module, value)
        for name, module in modules.items()
        for value in vars(module).values()
        if isinstance(value, triton.JITFunction)
    }


def compiled(name, target, *, is_aligned):
    module, kernel = kernels()[name]
    constants = {"BLOCK": module.BLOCK}
    numbers = range(len(SIGNATURES[name])) if is_aligned else ()
    source = compiler.ASTSource(
        kernel,
        SIGNATURES[name] | dict.fromkeys(constants, "constexpr"),
        constants,
        {(number,): ALIGNED for number in numbers},
    )
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=module.OPTIONS)


def resources(kernel, path):
    """Registers of a thread, spilled bytes of a thread, shared bytes of a program."""
    path.write_bytes(kernel.asm["cubin"])
    listing = subprocess.run([CUOBJDUMP, "-res-usage", path], capture_output=True, text=True, check=True)
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", listing.stdout)}
    return found["REG"], found["STACK"] + found["LOCAL"], kernel.metadata.shared


def test_every_kernel_is_in_the_table():
    assert set(kernels()) == set(SIGNATURES) == {name for name, _ in LIMITS}


@pytest.mark.parametrize(("name", "target"), LIMITS)
def test_a_kernel_compiles_for_the_gpu_and_takes_no_more_of_it(name, target, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    *registers, shared = LIMITS[name, target]
    for is_aligned, most in zip((False, True), registers, strict=True):
        taken = resources(compiled(name, target, is_aligned=is_aligned), tmp_path / "kernel.cubin")
        assert all(one <= limit for one, limit in zip(taken, (most, 0, shared), strict=True)), taken
