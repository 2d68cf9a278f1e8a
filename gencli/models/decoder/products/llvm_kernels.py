"""The kernels of products with few bits on a CPU (llvm_code.py compiles them), with what comes before them
in a layer: norm, residual sum or gate.

A row x of activations is rounded for each 32 inputs to two bytes a number, x = scale * (high + low / 256)
with scale = max(abs(x)) / 127. The products of bytes are added up exactly, as integers, and the sums of
each 32 inputs in the order of the inputs, in float32. So the bits of a row are the same among any number of
rows, with any number of threads, and with every instruction set.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from gencli.models.decoder.kernels.llvm_code import LANES, CpuCode, compiled

GROUP = 32  # inputs with one scale
TILE_ROWS = 8  # rows whose sums are held in registers at once
SCRATCH_BYTES = 2 * GROUP + 12  # of a row's group: its bytes, its scale and the sums of both halves

_PREFETCH_BYTES = 2560  # ahead of what is read; pays from five rows on
_PREFETCH_ROWS = 5
_MIN_TOP = 2.0**-111  # groups of smaller numbers count as zeros: 127 / top would be infinite
_MANY_BLOCKS = 4  # blocks that stay in cache while every tile of rows is multiplied with them


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


class Inputs(IntEnum):
    """The inputs of a product as a function of x, which the threads compute while they round them.

    NORMED: norm(x). SUMMED: norm(x + factor * more). POST_NORMED: norm(x + factor * post(more)). Norms are
    RMS norms, and the sum is stored too. SILU, GELU_TANH: act(gate) * up, where a row of x holds all gates,
    then up.
    """

    PLAIN = 0
    NORMED = 1
    SUMMED = 2
    POST_NORMED = 3
    SILU = 4
    GELU_TANH = 5


_POINTERS = "codes scales bias x y scratch more post norm total".split()
_NUMBERS = "groups rows outputs stride inputs".split()


class ProductArguments(ctypes.Structure):
    """Addresses and sizes of one call of a product.

    y is [rows, outputs] in rows of `stride` numbers, x [rows, 32 * groups], as are `more` and the `total`.
    `inputs` is one of Inputs.
    """

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_float) for name in ("factor", "post_eps", "eps")),
    ]


@cache
def kernel(form: CodeFormat, instructions: str | None = None) -> Callable[[ctypes._CArgObject, int], None]:
    """Return the function that computes y = x @ weights.T + bias, of its arguments and the threads.

    `instructions` other than this CPU's best are for tests.
    """
    return compiled(KernelSource(form, instructions))


class KernelSource(CpuCode):
    """The IR of the kernels of a format.

    A thread rounds a share of the activations' groups, waits for the others, and multiplies a share of the
    blocks.
    """

    arguments = ProductArguments

    def __init__(self, form: CodeFormat, instructions: str | None = None) -> None:
        super().__init__(form, instructions)
        self.form = form

    # Rounding of the activations.

    def rounding(self, inputs: Inputs) -> Any:
        """Return the function that rounds groups first .. end of a tile of rows, which begins with `start`.

        The tile's bytes, scales and sums lie group by group, in a group row by row.
        """
        names = ["call", "start", "first", "end", "rows", "bytes", "scales", "sums"]
        kinds = [self.pointer, *[self.i64] * 4, *[self.pointer] * 3]
        rounding = self.function(f"rounding_{inputs.name.lower()}", self.void, kinds)
        b = self.ir.IRBuilder(rounding.append_basic_block())
        args = dict(zip(names, rounding.args, strict=True))
        args |= {name: value for name, value in self.fields(b, args["call"]).items() if name not in args}
        roots = self.roots(b, args, inputs)
        with (
            self.loop(b, args["first"], args["end"]) as group,
            self.loop(b, self.i64(0), args["rows"]) as row,
        ):
            halves = self.inputs(b, args, inputs, b.add(args["start"], row), group, roots and roots(row))
            self.round_group(b, halves, b.add(b.mul(group, args["rows"]), row), args)
        b.ret_void()
        return rounding

    def roots(self, b: Any, args: dict[str, Any], inputs: Inputs) -> Callable[[Any], tuple[Any, Any]] | None:
        """Compute the factors of both norms for each row of the tile; return what reads those of a row.

        Each thread computes all of them, from all groups.
        """
        if inputs not in (Inputs.NORMED, Inputs.SUMMED, Inputs.POST_NORMED):
            return None
        tables = [b.alloca(self.f32, TILE_ROWS) for _ in range(2)]
        count = b.uitofp(b.mul(args["groups"], self.i64(GROUP)), self.f32)

        def fill(index: int, eps: Any, read: Callable[[Any, Any], Sequence[Any]]) -> None:
            with self.loop(b, self.i64(0), args["rows"]) as row:
                totals = [self.variable(b, self.constant(self.floats, 0.0)) for _ in range(2)]
                with self.loop(b, self.i64(0), args["groups"]) as group:
                    for total, half in zip(totals, read(row, group), strict=True):
                        b.store(self.fma(b, half, half, b.load(total, typ=self.floats)), total)
                both = b.fadd(*(b.load(total, typ=self.floats) for total in totals))
                b.store(
                    self.root_mean(b, both, count, eps), b.gep(tables[index], [row], source_etype=self.f32)
                )

        def roots_of(row: Any) -> tuple[Any, Any]:
            post, norm = (
                b.load(b.gep(table, [row], source_etype=self.f32), typ=self.f32) for table in tables
            )
            return post, norm

        if inputs is Inputs.POST_NORMED:
            fill(0, args["post_eps"], lambda row, group: self.numbers(b, args, "more", row, group))
        fill(1, args["eps"], lambda row, group: self.summed(b, args, inputs, row, group, roots_of(row)[0]))
        return roots_of

    def numbers(self, b: Any, args: dict[str, Any], name: str, row: Any, group: Any) -> list[Any]:
        """Return the 32 numbers of a group of row `row` of the tile."""
        row = b.mul(b.add(args["start"], row), args["groups"])
        return self.half_groups(b, args[name], b.add(row, group))

    def half_groups(self, b: Any, pointer: Any, group: Any) -> list[Any]:
        start = b.mul(group, self.i64(4 * GROUP))
        return [
            self.read(b, self.floats, pointer, b.add(start, self.i64(offset)), 4) for offset in (0, 4 * LANES)
        ]

    def summed(
        self, b: Any, args: dict[str, Any], inputs: Inputs, row: Any, group: Any, post_root: Any
    ) -> list[Any]:
        """Return the 32 numbers of which the norm is taken."""
        states = self.numbers(b, args, "x", row, group)
        if inputs is Inputs.NORMED:
            return states
        more = self.numbers(b, args, "more", row, group)
        if inputs is Inputs.POST_NORMED:
            weights = self.half_groups(b, args["post"], group)
            root = self.splat(b, post_root)
            more = [b.fmul(b.fmul(half, root), weight) for half, weight in zip(more, weights, strict=True)]
        factor = self.splat(b, args["factor"])
        return [b.fadd(state, b.fmul(half, factor)) for state, half in zip(states, more, strict=True)]

    def inputs(
        self,
        b: Any,
        args: dict[str, Any],
        inputs: Inputs,
        row: Any,
        group: Any,
        roots: tuple[Any, Any] | None,
    ) -> list[Any]:
        """Return the 32 inputs of a group of a row; a sum is stored too."""
        row_in_tile, groups = b.sub(row, args["start"]), args["groups"]
        if inputs is Inputs.PLAIN:
            return self.numbers(b, args, "x", row_in_tile, group)
        if roots is None:
            gate = b.add(b.mul(b.mul(row, groups), self.i64(2)), group)
            gates, ups = (self.half_groups(b, args["x"], at) for at in (gate, b.add(gate, groups)))
            return [b.fmul(self.activated(b, half, inputs), up) for half, up in zip(gates, ups, strict=True)]
        states = self.summed(b, args, inputs, row_in_tile, group, roots[0])
        if inputs is not Inputs.NORMED:
            start = b.mul(b.add(b.mul(row, groups), group), self.i64(4 * GROUP))
            for half, offset in zip(states, (0, 4 * LANES), strict=True):
                b.store(half, self.at(b, args["total"], b.add(start, self.i64(offset))), align=4)
        root, weights = self.splat(b, roots[1]), self.half_groups(b, args["norm"], group)
        return [b.fmul(b.fmul(half, root), weight) for half, weight in zip(states, weights, strict=True)]

    def activated(self, b: Any, gate: Any, inputs: Inputs) -> Any:
        """Return gate / (1 + exp(-t)): t is the gate for SiLU, and of GELU twice the argument of tanh."""
        if inputs is Inputs.SILU:
            exponent = b.fsub(self.constant(self.floats, -0.0), gate)
        else:
            cube = b.fmul(b.fmul(gate, gate), gate)
            inner = self.fma(b, cube, self.constant(self.floats, 0.044715), gate)
            exponent = b.fmul(inner, self.constant(self.floats, -2 * 0.7978845608028654))
        return b.fdiv(gate, b.fadd(self.exp(b, exponent), self.constant(self.floats, 1.0)))

    def round_group(self, b: Any, halves: Sequence[Any], position: Any, args: dict[str, Any]) -> None:
        """Round 32 numbers to the bytes, the scale and the two sums number `position`."""
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
            # The types of LLVM 20, which later releases change to theirs.
            return self.intrinsic(b, "x86.avx512.vpdpbusd.512", self.words, sums, codes, self.splat(b, x))
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
        kinds = [*[self.pointer] * 7, *[self.i64] * 5]
        made = self.function(f"tile_{rows}", self.void, kinds)
        args = dict(zip((*names, "outputs", "stride"), made.args, strict=True))
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

    def write_block(self, b: Any, args: dict[str, Any], block: Any, totals: Sequence[Any]) -> None:
        """Write the totals of a block with the bias; the last block may have fewer than 16 outputs."""
        first = b.mul(block, self.i64(LANES))
        numbers = self.ir.Constant(self.vector(self.i64), list(range(LANES)))
        is_there = b.icmp_unsigned("<", b.add(self.splat(b, first), numbers), self.splat(b, args["outputs"]))
        bias = self.read(b, self.floats, args["bias"], b.mul(first, self.i64(4)), 4)
        for row, total in enumerate(totals):
            offset = b.mul(b.add(first, b.mul(args["stride"], self.i64(row))), self.i64(4))
            y, mask = self.at(b, args["y"], offset), is_there
            value = b.fadd(b.load(total, typ=self.floats), bias)
            self.intrinsic(b, "masked.store.v16f32.p0", self.void, value, y, self.i32(4), mask)

    def build_work(self, b: Any, args: dict[str, Any], thread: Any, threads: Any) -> None:
        call = b.function.args[0]
        roundings = [self.rounding(inputs) for inputs in Inputs]
        tiles = [self.tile(rows) for rows in range(1, TILE_ROWS + 1)]
        rows, groups, zero = args["rows"], args["groups"], self.i64(0)

        def tile_parts(start: Any) -> tuple[Any, Any, Any, Any]:
            """Return the rows of the tile that begins with row `start`, and where its parts are."""
            count = self.least(b, b.sub(rows, start), self.i64(TILE_ROWS))
            bytes_ = self.at(b, args["scratch"], b.mul(b.mul(start, groups), self.i64(SCRATCH_BYTES)))
            numbers = b.mul(count, groups)
            scales = self.at(b, bytes_, b.mul(numbers, self.i64(2 * GROUP)))
            return count, bytes_, scales, self.at(b, scales, b.mul(numbers, self.i64(4)))

        first, end = self.share(b, groups, thread, threads)
        with self.loop(b, zero, rows, self.i64(TILE_ROWS)) as start:
            self.choose(b, args["inputs"], roundings, [call, start, first, end, *tile_parts(start)])
        self.barrier(b, threads)
        blocks = b.udiv(b.add(args["outputs"], self.i64(LANES - 1)), self.i64(LANES))
        first, end = self.share(b, blocks, thread, threads)
        is_one_tile = b.icmp_unsigned("<=", rows, self.i64(TILE_ROWS))
        step = b.select(is_one_tile, b.add(b.sub(end, first), self.i64(1)), self.i64(_MANY_BLOCKS))
        with self.loop(b, first, end, step) as block, self.loop(b, zero, rows, self.i64(TILE_ROWS)) as start:
            count, bytes_, scales, sums = tile_parts(start)
            y = self.at(b, args["y"], b.mul(b.mul(start, args["stride"]), self.i64(4)))
            last = self.least(b, b.add(block, step), end)
            values = [args["codes"], args["scales"], args["bias"], bytes_, scales, sums, y, block, last]
            values += [groups, args["outputs"], args["stride"]]
            self.choose(b, b.sub(count, self.i64(1)), tiles, values)

    def choose(self, b: Any, number: Any, functions: Sequence[Any], values: Sequence[Any]) -> None:
        """Call function `number` with the values."""
        behind = b.append_basic_block("called")
        choice = b.switch(number, behind)
        for index, function in enumerate(functions):
            choice.add_case(self.i64(index), case := b.append_basic_block(f"case_{index}"))
            b.position_at_end(case)
            b.call(function, values)
            b.branch(behind)
        b.position_at_end(behind)
