"""Triton kernels compiled ahead of time, for GPUs that are not here.

`tests/compiled/<module>.json` lists the builds of a module's kernels: by a name, the kernel's function, the
types of its arguments, its constants, and what it took of each GPU when the file was written by
`scripts/aot_table.py`. A digest stands beside: of Triton's first intermediate code of the kernel and of all
that makes machine code of it. While it is the same, so is what the kernel takes, and nothing is compiled.
"""

import hashlib
import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import triton
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

__all__ = [
    "FOLDER",
    "MAX_REGISTERS",
    "SHARED_KIB",
    "TARGETS",
    "builds",
    "compiled",
    "digest",
    "kernel_files",
    "kernel_modules",
    "known",
    "taken",
]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# Compute capabilities: A100, RTX 40, H100 and H200, B200, RTX 50.
TARGETS = (80, 89, 90, 100, 120)
# What a thread and a program may take at most; CUDA C++ Programming Guide, "Compute Capabilities".
MAX_REGISTERS = 255
SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
ALIGNED = [["tt.divisibility", 16]]  # what a launch finds of most pointers and widths


def kernel_files():
    """The files with functions that Triton compiles."""
    paths = ROOT.glob("[gp]*/**/*_triton.py")
    return [path for path in paths if "@triton.jit" in path.read_text(encoding="utf-8")]


def kernel_modules():
    """The names of the modules with functions that Triton compiles, and these functions."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in kernel_files()]
    return {
        name: {
            key: value
            for key, value in vars(import_module(name)).items()
            if isinstance(value, triton.JITFunction) and value.fn.__module__ == name
        }
        for name in sorted(names)
    }


def builds(module):
    """The builds of a module: name -> {kernel, signature, constants, options, limits, digests}."""
    return json.loads((FOLDER / f"{module}.json").read_text(encoding="utf-8"))


def compiled(module, build, target):
    """The kernel compiled for the target. Raises what Triton raises for a kernel that does not compile."""
    return triton.compile(_source(module, build), target=_gpu(target), options=_options(module, build))


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


def known(module, build, target):
    """What the kernel takes of the target by the table, or None if its digest is another: then compile it."""
    same = build.get("digests", {}).get(str(target)) == digest(module, build, target)
    return build["limits"][str(target)] if same else None


def digest(module, build, target):
    """16 digits of all that decides what the kernel takes, and of its limits: none stays unproved.

    Places in files are left out: the same kernel some lines further down has the same digest.
    """
    backend = make_backend(_gpu(target))
    options = backend.parse_options(_options(module, build))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options), backend.get_module_map()
    code = _source(module, build).make_ir(_gpu(target), options, *functions, context)
    parts = (
        triton.__version__,
        backend.hash(),  # the version of ptxas
        options.hash(),
        sorted(get_cache_invalidating_env_vars().items()),
        code.str_nodebug(),
        build["limits"][str(target)],
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _gpu(target):
    return GPUTarget("cuda", target, 32)


def _options(module, build):
    return import_module(module).OPTIONS | build.get("options", {})


def _source(module, build):
    kernel = vars(import_module(module))[build["kernel"]]
    signature, constants = build["signature"], build.get("constants", {})
    anywhere = {*kernel.do_not_specialize, *kernel.do_not_specialize_on_alignment}
    aligned = [name for name, kind in signature.items() if not kind.startswith("fp") and name not in anywhere]
    return ASTSource(
        kernel,
        signature | dict.fromkeys(constants, "constexpr"),
        constants,
        {(kernel.arg_names.index(name),): ALIGNED for name in aligned},
    )
