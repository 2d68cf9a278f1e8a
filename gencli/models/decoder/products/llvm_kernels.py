"""Kernels of products with few bits on a CPU: LLVM IR written here, compiled by llvmlite, and run on the
threads that PyTorch computes with.

A row x of activations is rounded for each 32 inputs to two bytes a number, x = scale * (high + low / 256)
with scale = max(abs(x)) / 127. The products of bytes are added up exactly, as integers, and the sums of
each 32 inputs in the order of the inputs, in float32. So the bits of a row are the same among any number of
rows, with any number of threads, and with every instruction set.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gencli.files import read_file, replaced

GROUP = 32  # inputs with one scale
LANES = 16  # outputs of a block
TILE_ROWS = 8  # rows whose sums are held in registers at once
SCRATCH_BYTES = 2 * GROUP + 12  # of a row's group: its bytes, its scale and the sums of both halves

_PREFETCH_BYTES = 2560  # ahead of what is read; pays from five rows on
_PREFETCH_ROWS = 5
_MIN_TOP = 2.0**-111  # groups of smaller numbers count as zeros: 127 / top would be infinite
_MANY_BLOCKS = 4  # blocks that stay in cache while every tile of rows is multiplied with them
_MAX_OBJECT_BYTES = 10_000_000
_OTHERS = {"avx2": "haswell"}  # processors with other instructions than this one's


@dataclass(frozen=True, slots=True)
class CodeFormat:
    """How weights are stored: weight = (code - `middle`) * scale + offset, with unsigned codes.

    A block has 16 outputs and 32 inputs. Its codes are vectors of 16 words, a word of four bytes for each
    output. Of `bits` = 8, byte k of vector v has input 4 v + k. Of 4, it has input 8 v + k in the lower half
    and 8 v + 4 + k in the upper one. Of 5 and 6, more vectors have one upper bit each, that of input 4 v + k
    in bit v of byte k. `scale` is the number format of scales and offsets: half, bfloat or float. With
    `halves` each half of the 32 inputs has a scale of its own.
    """

    bits: int
    middle: int
    scale: str
    has_offset: bool = False
    halves: bool = False

    @property
    def code_bytes(self) -> int:
        """The bytes of a block's codes."""
        return self.bits * LANES * GROUP // 8

    @property
    def scale_bytes(self) -> int:
        """The bytes of a block's scales and offsets."""
        return self.number_bytes * LANES * (1 + self.halves + self.has_offset)

    @property
    def number_bytes(self) -> int:
        """The bytes of a scale."""
        return 4 if self.scale == "float" else 2


class Arguments(ctypes.Structure):
    """Addresses and sizes of one call of a product; y is [rows, outputs], x [rows, 32 * groups]."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("codes", "scales", "bias", "x", "y", "scratch")),
        *((name, ctypes.c_int64) for name in ("groups", "rows", "outputs")),
    ]


def missing() -> str | None:
    """Return why this machine or installation does not run the kernels; None if it does."""
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    if dot_instructions() is None:
        return "the CPU has none of AVX2, AVX-512 VNNI and AArch64's dot products"
    if not sys.platform.startswith("linux") or _openmp() is None:
        return "PyTorch does not compute with libgomp"
    return None


@cache
def kernel(form: CodeFormat, instructions: str | None = None) -> Callable[[ctypes._CArgObject, int], None]:
    """Return the function that computes y = x @ weights.T + bias, of a pointer to Arguments and the threads.

    Other Python threads run meanwhile. `instructions` other than this CPU's best are for tests.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = _openmp()
    for name in ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads"):
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if instructions not in (None, dot_instructions()):
        cpu, features = _OTHERS[instructions], ""
    target = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3)
    machine_code = _cached(form, instructions or dot_instructions() or "", (cpu, features), target)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(engine.get_function_address("run"))
    run.engine = engine  # type: ignore[attr-defined]  # it owns the code
    return run


def _cached(form: CodeFormat, instructions: str, machine: tuple[str, str], target: Any) -> bytes:
    """Return the compiled code, from the user's cache where it has been compiled before."""
    import llvmlite
    from platformdirs import user_cache_path

    facts = (form, instructions, machine, llvmlite.__version__, Path(__file__).read_bytes())
    path = user_cache_path("gencli") / "kernels" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()}.o"
    with suppress(OSError):
        return read_file(path, _MAX_OBJECT_BYTES)
    compiled = compile_object(form, instructions, target)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path, pipes=False) as file:
            file.write(compiled)
    return compiled


def compile_object(form: CodeFormat, instructions: str, target: Any) -> bytes:
    """Return the object code of a format for a target machine of llvmlite."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(KernelSource(form, instructions).text())
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()  # the sums become registers
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    compiled: bytes = target.emit_object(module)
    return compiled


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


class KernelSource:
    """The IR of the kernels of a format: `run`, which starts `work` on each thread.

    A thread rounds a share of the activations' groups, waits for the others, and multiplies a share of the
    blocks.
    """

    def __init__(self, form: CodeFormat, instructions: str) -> None:
        from llvmlite import ir

        self.ir, self.form, self.instructions = ir, form, instructions
        self.module = ir.Module("few_bits")
        self.i8, self.i16, self.i32, self.i64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
        self.f32, self.pointer, self.void = ir.FloatType(), ir.PointerType(), ir.VoidType()
        self.words, self.floats = self.vector(self.i32), self.vector(self.f32)

    def text(self) -> str:
        """Return the module."""
        ir = self.ir
        tiles = [self.tile(rows) for rows in range(1, TILE_ROWS + 1)]
        work = self.work(self.rounding(), tiles)
        run = self.function("run", self.void, [self.pointer, self.i32], is_internal=False)
        b = ir.IRBuilder(run.append_basic_block())
        parallel = self.extern("GOMP_parallel", self.void, [self.pointer, self.pointer, self.i32, self.i32])
        b.call(parallel, [work, run.args[0], run.args[1], self.i32(0)])
        b.ret_void()
        return str(self.module)

    # Types, constants and calls.

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

    # Rounding of the activations.

    def rounding(self) -> Any:
        """Return the function that rounds groups first .. end of a tile of rows.

        The tile's bytes, scales and sums lie group by group, in a group row by row.
        """
        names = ["x", "stride", "first", "end", "rows", "bytes", "scales", "sums"]
        kinds = [self.pointer, *[self.i64] * 4, *[self.pointer] * 3]
        made = self.function("rounding", self.void, kinds)
        b = self.ir.IRBuilder(made.append_basic_block())
        args = dict(zip(names, made.args, strict=True))
        with (
            self.loop(b, args["first"], args["end"]) as group,
            self.loop(b, self.i64(0), args["rows"]) as row,
        ):
            x = self.at(b, args["x"], b.mul(b.mul(row, args["stride"]), self.i64(4)))
            x = self.at(b, x, b.mul(group, self.i64(4 * GROUP)))
            self.round_group(b, x, b.add(b.mul(group, args["rows"]), row), args)
        b.ret_void()
        return made

    def round_group(self, b: Any, x: Any, position: Any, args: dict[str, Any]) -> None:
        """Round the 32 numbers at `x` to the bytes, the scale and the two sums number `position`."""
        halves = [self.read(b, self.floats, x, self.i64(offset), 4) for offset in (0, 4 * LANES)]
        # As integers, so that a NaN is the largest.
        sizes = [b.and_(b.bitcast(half, self.words), self.constant(self.words, 2**31 - 1)) for half in halves]
        largest = self.intrinsic(b, "smax.v16i32", self.words, *sizes)
        top = b.bitcast(self.intrinsic(b, "vector.reduce.smax.v16i32", self.i32, largest), self.f32)
        is_finite = b.fcmp_ordered("<", top, self.f32(float("inf")))
        is_number = b.and_(is_finite, b.fcmp_ordered(">", top, self.f32(_MIN_TOP)))
        inverse = b.select(is_number, b.fdiv(self.f32(127.0), top), self.f32(0.0))
        scale = b.select(is_finite, b.fdiv(top, self.f32(127.0)), self.f32(float("nan")))
        scale = b.fmul(
            b.select(is_number, scale, b.select(is_finite, self.f32(0.0), scale)), self.f32(2.0**-8)
        )
        b.store(scale, self.at(b, args["scales"], b.mul(position, self.i64(4))), align=4)
        keep, inverse = self.splat(b, is_number), self.splat(b, inverse)
        bytes_ = self.at(b, args["bytes"], b.mul(position, self.i64(2 * GROUP)))
        for half, offset in zip(halves, (0, LANES), strict=True):
            # Numbers that are not finite become zeros; the scale makes NaN of the sums.
            numbers = b.fmul(b.select(keep, half, self.constant(self.floats, 0.0)), inverse)
            high = self.intrinsic(b, "rint.v16f32", self.floats, numbers)
            low = b.fmul(b.fsub(numbers, high), self.constant(self.floats, 256.0))
            low = b.fptosi(self.intrinsic(b, "rint.v16f32", self.floats, low), self.words)
            # -128 has no counterpart; AVX2 changes signs of bytes.
            low = self.intrinsic(b, "smin.v16i32", self.words, low, self.constant(self.words, 127))
            low = self.intrinsic(b, "smax.v16i32", self.words, low, self.constant(self.words, -127))
            high = b.fptosi(high, self.words)
            for numbers, start in ((high, offset), (low, GROUP + offset)):
                target = self.at(b, bytes_, self.i64(start))
                b.store(b.trunc(numbers, self.vector(self.i8)), target, align=LANES)
            total = b.add(b.shl(high, self.constant(self.words, 8)), low)
            total = self.intrinsic(b, "vector.reduce.add.v16i32", self.i32, total)
            at = b.add(b.mul(position, self.i64(8)), self.i64(offset // LANES * 4))
            b.store(total, self.at(b, args["sums"], at), align=4)

    # Products.

    def dot(self, b: Any, sums: Any, codes: Any, x: Any) -> Any:
        """Return sums [16] + the dot products of 16 x 4 codes and the four signed bytes `x`."""
        if self.instructions == "vnni":
            many = self.vector(self.i8, 64)
            x = b.bitcast(self.splat(b, x), many)
            return self.intrinsic(b, "x86.avx512.vpdpbusd.512", self.words, sums, b.bitcast(codes, many), x)
        lanes = 8 if self.instructions == "avx2" else 4
        x = b.bitcast(self.splat(b, x, lanes), self.vector(self.i8, 4 * lanes))
        parts = [
            self.narrow_dot(b, self.part(b, sums, start, lanes), self.part(b, codes, start, lanes), x, lanes)
            for start in range(0, LANES, lanes)
        ]
        while len(parts) > 1:
            wide = self.ir.Constant(self.vector(self.i32, 2 * lanes), list(range(2 * lanes)))
            parts = [
                b.shuffle_vector(first, second, wide)
                for first, second in zip(parts[::2], parts[1::2], strict=True)
            ]
            lanes *= 2
        return parts[0]

    def part(self, b: Any, words: Any, start: int, lanes: int) -> Any:
        order = self.ir.Constant(self.vector(self.i32, lanes), list(range(start, start + lanes)))
        return b.shuffle_vector(words, self.ir.Constant(words.type, self.ir.Undefined), order)

    def narrow_dot(self, b: Any, sums: Any, codes: Any, x: Any, lanes: int) -> Any:
        """Return what `dot` does, for eight outputs with AVX2 or four on AArch64."""
        narrow, is_wide = self.vector(self.i8, 4 * lanes), self.form.bits == 8
        codes = b.bitcast(codes, narrow)
        if is_wide:  # codes of 8 bits are taken as signed numbers, less 128
            codes = b.xor(codes, self.constant(narrow, -128))
        if self.instructions == "sdot":
            return self.intrinsic(b, "aarch64.neon.sdot.v4i32.v16i8", sums.type, sums, codes, x)
        if is_wide:  # the unsigned numbers of the instruction are sizes, whose signs x takes
            x = self.intrinsic(b, "x86.avx2.psign.b", narrow, x, codes)
            codes = self.intrinsic(b, "abs.v32i8", narrow, codes, self.ir.IntType(1)(0))
        pairs = self.vector(self.i16)
        made = self.intrinsic(b, "x86.avx2.pmadd.ub.sw", pairs, codes, x)
        made = self.intrinsic(b, "x86.avx2.pmadd.wd", sums.type, made, self.constant(pairs, 1))
        return b.add(sums, made)

    @property
    def middle(self) -> int:
        """The code of a weight of 0 as the dot products read codes: signed ones of 8 bits are less by 128."""
        return self.form.middle - (128 if self.form.bits == 8 and self.instructions != "vnni" else 0)

    def tile(self, rows: int) -> Any:
        """Return the function that multiplies blocks first .. end with a tile of so many rows."""
        names = ["codes", "scales", "bias", "bytes", "x_scales", "sums", "y", "first", "end", "groups"]
        kinds = [*[self.pointer] * 7, *[self.i64] * 4]
        made = self.function(f"tile_{rows}", self.void, kinds)
        args = dict(zip((*names, "outputs"), made.args, strict=True))
        for name in names[:7]:
            made.args[names.index(name)].add_attribute("noalias")
        b = self.ir.IRBuilder(made.append_basic_block())
        with self.loop(b, args["first"], args["end"]) as block:
            totals = [self.variable(b, self.constant(self.floats, 0.0)) for _ in range(rows)]
            with self.loop(b, self.i64(0), args["groups"]) as group:
                position = b.add(b.mul(block, args["groups"]), group)
                self.add_group(b, args, position, b.mul(group, self.i64(rows)), totals)
            self.write_block(b, args, block, totals)
        b.ret_void()
        return made

    def add_group(
        self, b: Any, args: dict[str, Any], position: Any, x_index: Any, totals: Sequence[Any]
    ) -> None:
        """Add the products of a block's group, number `position`, to the totals of the rows."""
        form, rows = self.form, range(len(totals))
        start = b.mul(position, self.i64(form.code_bytes))
        if len(rows) >= _PREFETCH_ROWS:
            for line in range(0, form.code_bytes, 64):
                ahead = self.at(b, args["codes"], b.add(start, self.i64(_PREFETCH_BYTES + line)))
                self.intrinsic(b, "prefetch.p0", self.void, ahead, self.i32(0), self.i32(3), self.i32(1))
        codes = self.codes(b, args["codes"], start)
        x_start = b.mul(x_index, self.i64(2 * GROUP))

        def x_words(row: int, part: int, index: int) -> Any:
            offset = self.i64(2 * GROUP * row + GROUP * part + 4 * index)
            return self.read(b, self.i32, args["bytes"], b.add(x_start, offset), 4)

        scale_start, step = b.mul(position, self.i64(form.scale_bytes)), form.number_bytes * LANES
        numbers = [
            self.wide(b, args["scales"], b.add(scale_start, self.i64(offset)))
            for offset in range(0, form.scale_bytes, step)
        ]
        indexes = [range(4), range(4, 8)] if form.halves else [range(8)]
        for number, (scale, part_indexes) in enumerate(zip(numbers, indexes, strict=False)):
            sums = [self.constant(self.words, 0) for _ in rows]
            for byte in range(2):
                for index in part_indexes:
                    for row in rows:
                        sums[row] = self.dot(b, sums[row], codes[index], x_words(row, byte, index))
                if byte == 0:
                    sums = [b.shl(words, self.constant(self.words, 8)) for words in sums]
            for row in rows:
                at = b.add(x_index, self.i64(row))
                x_scale = self.splat(b, self.read(b, self.f32, args["x_scales"], b.mul(at, self.i64(4)), 4))
                halves = [number] if form.halves else [0, 1]
                x_sums = [
                    self.read(b, self.i32, args["sums"], b.add(b.mul(at, self.i64(8)), self.i64(4 * half)), 4)
                    for half in halves
                ]
                x_sum = x_sums[0] if form.halves else b.add(*x_sums)
                if self.middle:
                    sums[row] = b.add(sums[row], self.splat(b, b.mul(x_sum, self.i32(-self.middle))))
                total = b.load(totals[row], typ=self.floats)
                total = self.fma(b, b.sitofp(sums[row], self.floats), b.fmul(scale, x_scale), total)
                if form.has_offset:
                    x_number = b.fmul(self.splat(b, b.sitofp(x_sum, self.f32)), x_scale)
                    total = self.fma(b, x_number, numbers[-1], total)
                b.store(total, totals[row])

    def codes(self, b: Any, codes: Any, start: Any) -> list[Any]:
        """Return a block's codes, eight vectors of 16 x 4."""
        bits = self.form.bits
        read = [
            self.read(b, self.words, codes, b.add(start, self.i64(4 * LANES * index)), 64)
            for index in range(bits)
        ]
        if bits == 8:
            return read
        low, four = self.constant(self.words, 0x0F0F0F0F), self.constant(self.words, 4)
        halves = [(b.and_(words, low), b.and_(b.lshr(words, four), low)) for words in read[:4]]
        made = [half for pair in halves for half in pair]
        ones = self.constant(self.words, 0x01010101)
        for bit, plane in enumerate(read[4:], 4):
            for index, half in enumerate(made):
                upper = b.and_(b.lshr(plane, self.constant(self.words, index)), ones)
                made[index] = b.or_(half, b.shl(upper, self.constant(self.words, bit)))
        return made

    def wide(self, b: Any, pointer: Any, offset: Any) -> Any:
        """Return 16 scales or offsets in float32."""
        if self.form.scale == "float":
            return self.read(b, self.floats, pointer, offset, 4 * LANES)
        if self.form.scale == "half":
            numbers = self.read(b, self.vector(self.ir.HalfType()), pointer, offset, 2 * LANES)
            return b.fpext(numbers, self.floats)
        bits = b.zext(self.read(b, self.vector(self.i16), pointer, offset, 2 * LANES), self.words)
        return b.bitcast(b.shl(bits, self.constant(self.words, 16)), self.floats)

    def fma(self, b: Any, first: Any, second: Any, third: Any) -> Any:
        return self.intrinsic(b, "fma.v16f32", self.floats, first, second, third)

    def write_block(self, b: Any, args: dict[str, Any], block: Any, totals: Sequence[Any]) -> None:
        """Write the totals of a block with the bias; the last block may have fewer than 16 outputs."""
        first = b.mul(block, self.i64(LANES))
        numbers = self.ir.Constant(self.vector(self.i64), list(range(LANES)))
        is_there = b.icmp_unsigned("<", b.add(self.splat(b, first), numbers), self.splat(b, args["outputs"]))
        bias = self.read(b, self.floats, args["bias"], b.mul(first, self.i64(4)), 4)
        for row, total in enumerate(totals):
            offset = b.mul(b.add(first, b.mul(args["outputs"], self.i64(row))), self.i64(4))
            y, mask = self.at(b, args["y"], offset), is_there
            value = b.fadd(b.load(total, typ=self.floats), bias)
            self.intrinsic(b, "masked.store.v16f32.p0", self.void, value, y, self.i32(4), mask)

    def work(self, rounding: Any, tiles: Sequence[Any]) -> Any:
        """Return the function that computes the share of a thread."""
        made = self.function("work", self.void, [self.pointer])
        b = self.ir.IRBuilder(made.append_basic_block())
        names = [field[0] for field in Arguments._fields_]
        kinds = [self.pointer if field[1] is ctypes.c_void_p else self.i64 for field in Arguments._fields_]
        args = {
            name: self.read(b, kind, made.args[0], self.i64(8 * index), 8)
            for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }
        thread, threads = (
            b.zext(b.call(self.extern(name, self.i32, []), []), self.i64)
            for name in ("omp_get_thread_num", "omp_get_num_threads")
        )

        def share(count: Any) -> tuple[Any, Any]:
            ends = (b.mul(count, thread), b.mul(count, b.add(thread, self.i64(1))))
            return b.udiv(ends[0], threads), b.udiv(ends[1], threads)

        rows, groups, zero = args["rows"], args["groups"], self.i64(0)
        stride = b.mul(groups, self.i64(GROUP))

        def tile_parts(start: Any) -> tuple[Any, Any, Any, Any]:
            """Return the rows of the tile that begins with row `start`, and where its parts are."""
            count = self.least(b, b.sub(rows, start), self.i64(TILE_ROWS))
            bytes_ = self.at(b, args["scratch"], b.mul(b.mul(start, groups), self.i64(SCRATCH_BYTES)))
            numbers = b.mul(count, groups)
            scales = self.at(b, bytes_, b.mul(numbers, self.i64(2 * GROUP)))
            return count, bytes_, scales, self.at(b, scales, b.mul(numbers, self.i64(4)))

        first, end = share(groups)
        with self.loop(b, zero, rows, self.i64(TILE_ROWS)) as start:
            count, bytes_, scales, sums = tile_parts(start)
            x = self.at(b, args["x"], b.mul(b.mul(start, stride), self.i64(4)))
            b.call(rounding, [x, stride, first, end, count, bytes_, scales, sums])
        with b.if_then(b.icmp_unsigned(">", threads, self.i64(1))):
            b.call(self.extern("GOMP_barrier", self.void, []), [])
        blocks = b.udiv(b.add(args["outputs"], self.i64(LANES - 1)), self.i64(LANES))
        first, end = share(blocks)
        is_one_tile = b.icmp_unsigned("<=", rows, self.i64(TILE_ROWS))
        step = b.select(is_one_tile, b.add(b.sub(end, first), self.i64(1)), self.i64(_MANY_BLOCKS))
        with self.loop(b, first, end, step) as block, self.loop(b, zero, rows, self.i64(TILE_ROWS)) as start:
            count, bytes_, scales, sums = tile_parts(start)
            y = self.at(b, args["y"], b.mul(b.mul(start, args["outputs"]), self.i64(4)))
            last = self.least(b, b.add(block, step), end)
            values = [args["codes"], args["scales"], args["bias"], bytes_, scales, sums, y, block, last]
            behind = b.append_basic_block("called")
            choice = b.switch(count, behind)
            for number, tile in enumerate(tiles, 1):
                choice.add_case(self.i64(number), case := b.append_basic_block(f"rows_{number}"))
                b.position_at_end(case)
                b.call(tile, [*values, groups, args["outputs"]])
                b.branch(behind)
            b.position_at_end(behind)
        b.ret_void()
        return made
