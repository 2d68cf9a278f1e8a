"""Code for this CPU: LLVM IR that is built here, compiled by llvmlite, kept in the user's cache, and run on
the threads that PyTorch computes with (GNU OpenMP).

Vectors have 16 lanes on every CPU; LLVM divides them. No operation may be reordered, so the results have the
same bits with every instruction set.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gencli.files import read_file, replaced
from gencli.helpers import shortened

LANES = 16  # numbers of a vector
ALIGNED = 64  # bytes of a vector and of a cache line

_MAX_OBJECT_BYTES, _DIGEST_BYTES = 10_000_000, hashlib.sha256().digest_size
_OLDEST = (0, 46)  # release of llvmlite; others, which come with numba, have instructions of other types
_OTHERS = {"avx2": "haswell"}  # processors with other instructions than this one's
_LIBGOMP = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")


def missing() -> str | None:
    """Return why this machine or installation does not run the kernels; None if it does."""
    release = None
    with suppress(PackageNotFoundError):
        release = version("llvmlite")
    if release is None or find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    if tuple(int(part) for part in re.findall(r"\d+", release)[:2]) < _OLDEST:  # also of a pre-release
        return f"llvmlite {release} is older than {'.'.join(map(str, _OLDEST))}"
    if dot_instructions() is None:
        return "the CPU has none of AVX2, AVX-512 VNNI and AArch64's dot products"
    if not sys.platform.startswith("linux") or _openmp() is None:
        return "PyTorch does not compute with libgomp"
    fault = _import_fault()
    return fault and f"llvmlite {release} cannot be loaded ({fault})"


@cache
def _import_fault() -> str | None:
    try:
        import llvmlite.binding
        import llvmlite.ir  # noqa: F401
    except Exception as error:  # of any kind: its files, or a library that they need
        return shortened(" ".join(str(error).split()) or type(error).__name__, 80)
    return None


def compiled(source: CpuCode) -> Callable[[ctypes._CArgObject, int], None]:
    """Return the function of a pointer to the arguments and the number of threads.

    Other Python threads run meanwhile.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = _openmp()
    for name in _LIBGOMP:
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if source.instructions != dot_instructions():
        cpu, features = _OTHERS[source.instructions], ""
    target = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(_cached(source, (cpu, features), target)))
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(engine.get_function_address("run"))
    run.engine = engine  # type: ignore[attr-defined]  # it owns the code
    return run


def _cached(source: CpuCode, machine: tuple[str, str], target: Any) -> bytes:
    """Return the compiled code, from the user's cache where it has been compiled before.

    A file begins with the digest of its code: LLVM ends the process where it loads a damaged one.
    """
    import llvmlite
    from platformdirs import user_cache_path

    files = [Path(__file__), Path(str(sys.modules[type(source).__module__].__file__))]
    facts = (source.key, source.instructions, machine, llvmlite.__version__, [f.read_bytes() for f in files])
    path = user_cache_path("gencli") / "kernels" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()}.o"
    with suppress(OSError):
        content = read_file(path, _MAX_OBJECT_BYTES)
        if content[:_DIGEST_BYTES] == hashlib.sha256(content[_DIGEST_BYTES:]).digest():
            return content[_DIGEST_BYTES:]
    machine_code = _object_of(source, target)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path, pipes=False) as file:
            file.write(hashlib.sha256(machine_code).digest() + machine_code)
    return machine_code


def _object_of(source: CpuCode, target: Any) -> bytes:
    """Return the object code for a target machine of llvmlite."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(source.text())
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()  # the sums become registers
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    machine_code: bytes = target.emit_object(module)
    return machine_code


@cache
def _openmp() -> ctypes.CDLL | None:
    """Return the libgomp that PyTorch computes with."""
    import torch  # noqa: F401  # it loads the library

    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            path = line.split(maxsplit=5)[-1]
            if "libgomp" in Path(path).name:
                return ctypes.CDLL(path)
    return None


@cache
def dot_instructions() -> str | None:
    """Return the instruction set whose dot products are used here."""
    import torch

    if platform.machine() in ("aarch64", "arm64"):
        return "sdot"
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    if features.get("avx512_vnni") is True:
        return "vnni"
    return "avx2" if features.get("avx2") is True else None


class CpuCode(ABC):
    """The IR of a function `run`, which starts `work` on each thread. `key` names it among those of its file.

    `arguments` are the fields that `work` reads.
    """

    arguments: type[ctypes.Structure]

    def __init__(self, key: object, instructions: str | None) -> None:
        from llvmlite import ir

        self.ir, self.key, self.instructions = ir, key, instructions or dot_instructions() or ""
        self.module = ir.Module("gencli")
        self.i8, self.i16, self.i32, self.i64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
        self.f32, self.pointer, self.void = ir.FloatType(), ir.PointerType(), ir.VoidType()
        self.words, self.floats = self.vector(self.i32), self.vector(self.f32)

    @abstractmethod
    def build_work(self, b: Any, args: dict[str, Any], thread: Any, threads: Any) -> None:
        """Build what thread number `thread` of `threads` does."""

    def text(self) -> str:
        """Return the module."""
        work = self.function("work", self.void, [self.pointer])
        b = self.ir.IRBuilder(work.append_basic_block())
        thread, threads = (
            b.zext(b.call(self.extern(name, self.i32, []), []), self.i64)
            for name in ("omp_get_thread_num", "omp_get_num_threads")
        )
        self.build_work(b, self.fields(b, work.args[0]), thread, threads)
        b.ret_void()
        run = self.function("run", self.void, [self.pointer, self.i32], is_internal=False)
        b = self.ir.IRBuilder(run.append_basic_block())
        parallel = self.extern("GOMP_parallel", self.void, [self.pointer, self.pointer, self.i32, self.i32])
        b.call(parallel, [work, run.args[0], run.args[1], self.i32(0)])
        b.ret_void()
        return str(self.module)

    def fields(self, b: Any, pointer: Any) -> dict[str, Any]:
        """Return the arguments of a call."""
        kinds = {ctypes.c_void_p: self.pointer, ctypes.c_int64: self.i64, ctypes.c_float: self.f32}
        return {
            name: self.read(
                b, kinds[kind], pointer, self.i64(getattr(self.arguments, name).offset), ctypes.sizeof(kind)
            )
            for name, kind, *_ in self.arguments._fields_
        }

    def barrier(self, b: Any, threads: Any) -> None:
        """Wait for the other threads."""
        with b.if_then(b.icmp_unsigned(">", threads, self.i64(1))):
            b.call(self.extern("GOMP_barrier", self.void, []), [])

    def share(self, b: Any, count: Any, thread: Any, threads: Any) -> tuple[Any, Any]:
        """Return the first and the end of a thread's part of `count` things."""
        ends = (b.mul(count, thread), b.mul(count, b.add(thread, self.i64(1))))
        return b.udiv(ends[0], threads), b.udiv(ends[1], threads)

    def vector(self, kind: Any, lanes: int = LANES) -> Any:
        return self.ir.VectorType(kind, lanes)

    def constant(self, kind: Any, value: float) -> Any:
        """Return a vector of equal numbers."""
        return self.ir.Constant(kind, [value] * kind.count)

    def splat(self, b: Any, value: Any, lanes: int = LANES) -> Any:
        kind = self.vector(value.type, lanes)
        first = b.insert_element(self.ir.Constant(kind, self.ir.Undefined), value, self.i32(0))
        zeros = self.ir.Constant(self.vector(self.i32, lanes), [0] * lanes)
        return b.shuffle_vector(first, self.ir.Constant(kind, self.ir.Undefined), zeros)

    def extern(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        if name in self.module.globals:
            return self.module.globals[name]
        return self.ir.Function(self.module, self.ir.FunctionType(result, arguments), name)

    def function(self, name: str, result: Any, arguments: Sequence[Any], *, is_internal: bool = True) -> Any:
        made = self.extern(name, result, arguments)
        made.linkage = "internal" if is_internal else ""
        made.attributes.add("nounwind")
        return made

    def intrinsic(self, b: Any, name: str, result: Any, *arguments: Any) -> Any:
        return b.call(
            self.extern(f"llvm.{name}", result, [argument.type for argument in arguments]), arguments
        )

    def at(self, b: Any, pointer: Any, offset: Any) -> Any:
        """Return the pointer `offset` bytes behind another."""
        return b.gep(pointer, [offset], source_etype=self.i8)

    def read(self, b: Any, kind: Any, pointer: Any, offset: Any, align: int) -> Any:
        return b.load(self.at(b, pointer, offset), typ=kind, align=align)

    def variable(self, b: Any, value: Any) -> Any:
        """Return a variable that becomes a register."""
        with b.goto_entry_block():
            made = b.alloca(value.type)
        b.store(value, made)
        return made

    @contextmanager
    def loop(self, b: Any, start: Any, end: Any, step: Any = None) -> Iterator[Any]:
        """Build the body of a loop over start, start + step, ... below `end`; yields the index."""
        index = self.variable(b, start)
        head, body, behind = (b.append_basic_block(name) for name in ("head", "body", "behind"))
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(b.icmp_unsigned("<", b.load(index, typ=self.i64), end), body, behind)
        b.position_at_end(body)
        current = b.load(index, typ=self.i64)
        yield current
        b.store(b.add(current, self.i64(1) if step is None else step), index)
        b.branch(head)
        b.position_at_end(behind)

    def least(self, b: Any, first: Any, second: Any) -> Any:
        return self.intrinsic(b, "umin.i64", self.i64, first, second)

    def fma(self, b: Any, first: Any, second: Any, third: Any) -> Any:
        """Return first * second + third, rounded once."""
        return self.intrinsic(b, "fma.v16f32", self.floats, first, second, third)

    def folded(self, b: Any, values: Any, join: Callable[[Any, Any], Any]) -> Any:
        """Return a vector's 16 numbers joined to one, in halves: 8 and 8, 4 and 4, and so on."""
        count = LANES
        while count > 1:
            count //= 2
            undefined = self.ir.Constant(values.type, self.ir.Undefined)
            parts = [
                b.shuffle_vector(
                    values,
                    undefined,
                    self.ir.Constant(self.vector(self.i32, count), list(range(start, start + count))),
                )
                for start in (0, count)
            ]
            values = join(*parts)
        return b.extract_element(values, self.i32(0))

    def exp(self, b: Any, x: Any) -> Any:
        """Return e**x within two units in the last place, for x in -87.3..88.3, to which others are cut.

        With n = round(x / ln 2) it is 2**n times the Taylor polynomial of x - n * ln 2. NaN stays NaN.
        """
        numbers = {value: self.constant(self.floats, value) for value in (-87.3, 88.3, 1.4426950408889634)}
        for limit, sign in ((-87.3, "<"), (88.3, ">")):
            x = b.select(b.fcmp_ordered(sign, x, numbers[limit]), numbers[limit], x)
        n = self.intrinsic(b, "rint.v16f32", self.floats, b.fmul(x, numbers[1.4426950408889634]))
        # ln 2 in two parts, of which n times the first is exact.
        rest = self.fma(b, n, self.constant(self.floats, -0.693359375), x)
        rest = self.fma(b, n, self.constant(self.floats, 2.12194440e-4), rest)
        result = self.constant(self.floats, 1 / 5040)
        for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            result = self.fma(b, result, rest, self.constant(self.floats, factor))
        n = b.select(b.fcmp_ordered("ord", n, n), n, self.constant(self.floats, 0.0))
        exponent = b.add(b.fptosi(n, self.words), self.constant(self.words, 127))
        power = b.bitcast(b.shl(exponent, self.constant(self.words, 23)), self.floats)
        return b.fmul(result, power)

    def root_mean(self, b: Any, squares: Any, count: Any, eps: Any) -> Any:
        """Return 1 / sqrt(sum(squares) / count + eps) of a vector of sums."""
        mean = b.fdiv(self.folded(b, squares, b.fadd), count)
        root = self.intrinsic(b, "sqrt.f32", self.f32, b.fadd(mean, eps))
        return b.fdiv(self.f32(1.0), root)
