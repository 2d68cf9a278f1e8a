"""Triton kernels compiled ahead of time, for GPUs that are not here.

`tests/compiled/<module>.json` lists the builds of a module's kernels: by a name, the kernel's function, the
types of its arguments, its constants, and what it took of each GPU when the file was written by
`scripts/aot_table.py`.
"""

import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

__all__ = ["FOLDER", "TARGETS", "builds", "compiled", "kernel_modules", "taken"]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# Compute capabilities: A100, RTX 40, H100 and H200, B200, RTX 50.
TARGETS = (80, 89, 90, 100, 120)
ALIGNED = [["tt.divisibility", 16]]  # what a launch finds of most pointers and widths


def kernel_modules():
    """The names of the modules with functions that Triton compiles, and these functions."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in ROOT.glob("[gp]*/**/*_triton.py"))
    paths = [path.relative_to(ROOT).with_suffix("") for path, text in texts if "@triton.jit" in text]
    names = [".".join(path.parts) for path in paths]
    return {
        name: {
            key: value
            for key, value in vars(import_module(name)).items()
            if isinstance(value, triton.JITFunction) and value.fn.__module__ == name
        }
        for name in sorted(names)
    }


def builds(module):
    """The builds of a module: name -> {kernel, signature, constants, options, limits}."""
    return json.loads((FOLDER / f"{module}.json").read_text(encoding="utf-8"))


def compiled(module, build, target):
    """The kernel compiled for the target. Raises what Triton raises for a kernel that does not compile."""
    home = import_module(module)
    kernel, signature, constants = vars(home)[build["kernel"]], build["signature"], build.get("constants", {})
    aligned = [
        name
        for name, kind in signature.items()
        if not kind.startswith("fp") and name not in kernel.do_not_specialize
    ]
    source = ASTSource(
        kernel,
        signature | dict.fromkeys(constants, "constexpr"),
        constants,
        {(kernel.arg_names.index(name),): ALIGNED for name in aligned},
    )
    options = home.OPTIONS | build.get("options", {})
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def taken(module, build, target):
    """Registers and spilled bytes of a thread, and shared bytes of a program, compiled for the target."""
    kernel = compiled(module, build, target)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.asm["cubin"])
        told = subprocess.run(
            [TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
        )
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", told.stdout)}
    return [found["REG"], found["STACK"] + found["LOCAL"], kernel.metadata.shared]
