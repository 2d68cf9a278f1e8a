"""Attention of decode steps on a CPU by compiled code (llvm_code.py), in one call for a layer: norm and
rotation of queries and keys, the write to the KV buffer, scores, softmax, and the weighted sum of values.

One thread computes a query head of a token, keys in tiles. A score adds up the dimensions in their order, an
output the keys in their order, and the sum of a softmax has 16 parts, of the keys with equal remainders. So a
token's attention has the same bits whatever other tokens the pass has, with any number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.layer_kernels import Norm
from gencli.models.decoder.kernels.llvm_code import ALIGNED, LANES, CpuCode, compiled, missing

TILE = 64  # keys of a tile of the KV buffer, whose keys lie transposed: [D, TILE]
_MOST_WIDTH = 256  # numbers of a head that are held in registers
_UNROLLED = 4  # dimensions of a step of the scores
_POINTERS = "qkv buffer out scratch rows positions short cos sin query_norm key_norm".split()
_NUMBERS = "tokens shorts heads kv_heads capacity window rope_width scratch_keys".split()


class AttentionArguments(ctypes.Structure):
    """Addresses and sizes of one call.

    `qkv` is [tokens, Hq + 2 * Hkv, D], whose queries and keys are normalized and rotated in place; `buffer`
    [rows, 2 * Hkv, capacity, D]; `rows` and `positions` are those of the tokens, and `short` the numbers of
    the tokens whose attention is written to `out` [shorts, Hq * D]. `cos` and `sin` are [tokens,
    rope_width], absent without rotation. `scratch` has `scratch_keys` numbers for each thread.
    """

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    ]


def can_compile(spec: DecoderSpec) -> bool:
    """Return whether the layers of a decoder have attention that is computed here."""
    ropes = [spec.ropes[rope].width for rope in spec.layer_ropes if rope is not None]
    return (
        missing() is None
        and spec.head_dim % LANES == 0
        and spec.head_dim <= _MOST_WIDTH
        and all(width % (2 * LANES) == 0 for width in ropes)
        and spec.qk_norm in (None, "head")
        and spec.score_cap is None
        and not spec.has_sinks
    )


@cache
def kernel(width: int, instructions: str | None = None) -> Callable[[ctypes._CArgObject, int], None]:
    """Return the compiled attention for heads of `width`: a function of its arguments and the threads."""
    return compiled(AttentionSource(width, instructions))


def attend(
    qkv: Tensor,
    buffer: Tensor,
    cells: tuple[Tensor, Tensor],
    short: Tensor,
    most_keys: int,
    rope: tuple[Tensor, Tensor] | None,
    norms: tuple[Norm, Norm] | None,
    *,
    window: int | None,
    scale: float,
) -> Tensor:
    """Return the attention [S, Hq * D] of the tokens `short` [S] among `qkv` [N, Hq + 2 * Hkv, D], float32.

    Queries and keys are normalized and rotated in place; keys and values of all tokens are written to the
    `cells` (row, position) [N] of the buffer. `most_keys` bounds the keys that a token sees.
    """
    tokens, count, width = qkv.shape
    kv_heads, threads = buffer.shape[1] // 2, torch.get_num_threads()
    heads = count - 2 * kv_heads
    out = torch.empty(len(short), heads * width)
    scratch_keys = (most_keys // TILE + 2) * TILE
    scratch = torch.empty(threads * scratch_keys + ALIGNED // 4)
    start = scratch.data_ptr()
    arguments = AttentionArguments(
        qkv.data_ptr(),
        buffer.data_ptr(),
        out.data_ptr(),
        start + -start % ALIGNED,
        cells[0].data_ptr(),
        cells[1].data_ptr(),
        short.data_ptr(),
        None if rope is None else rope[0].data_ptr(),
        None if rope is None else rope[1].data_ptr(),
        None if norms is None else norms[0].weight.data_ptr(),
        None if norms is None else norms[1].weight.data_ptr(),
        tokens,
        len(short),
        heads,
        kv_heads,
        buffer.shape[2],
        window or 0,
        0 if rope is None else rope[0].shape[-1],
        scratch_keys,
        0.0 if norms is None else norms[0].eps,
        scale,
    )
    kernel(width)(ctypes.byref(arguments), threads)
    return out


class AttentionSource(CpuCode):
    """The IR for heads of `width` numbers.

    A thread prepares a share of the heads of all tokens, waits for the others, and computes a share of the
    query heads of the short tokens.
    """

    arguments = AttentionArguments

    def __init__(self, width: int, instructions: str | None = None) -> None:
        super().__init__(width, instructions)
        self.width = width

    def build_work(self, b: Any, args: dict[str, Any], thread: Any, threads: Any) -> None:
        double = b.mul(args["kv_heads"], self.i64(2))
        all_heads = b.add(args["heads"], double)
        args |= {"all_heads": all_heads, "double": double}
        # Numbers of a row of the buffer, and of a head of it.
        args["head_size"] = b.mul(args["capacity"], self.i64(self.width))
        args["row_size"] = b.mul(double, args["head_size"])
        first, end = self.share(b, b.mul(args["tokens"], all_heads), thread, threads)
        with self.loop(b, first, end) as task:
            self.prepare(b, args, b.udiv(task, all_heads), b.urem(task, all_heads))
        self.barrier(b, threads)
        scores = self.number_at(b, args["scratch"], b.mul(thread, args["scratch_keys"]))
        first, end = self.share(b, b.mul(args["shorts"], args["heads"]), thread, threads)
        with self.loop(b, first, end) as task:
            self.attend(b, args, scores, b.udiv(task, args["heads"]), b.urem(task, args["heads"]))

    def number_at(self, b: Any, pointer: Any, index: Any) -> Any:
        """Return the pointer to number `index` of float32 numbers."""
        return self.at(b, pointer, b.mul(index, self.i64(4)))

    def integer(self, b: Any, pointer: Any, index: Any) -> Any:
        return self.read(b, self.i64, pointer, b.mul(index, self.i64(8)), 8)

    def numbers(self, b: Any, pointer: Any, offset: int | Any) -> Any:
        """Return 16 numbers from number `offset` on."""
        offset = self.i64(offset) if isinstance(offset, int) else offset
        return self.read(b, self.floats, pointer, b.mul(offset, self.i64(4)), 4)

    def put(self, b: Any, values: Any, pointer: Any, offset: int | Any) -> None:
        offset = self.i64(offset) if isinstance(offset, int) else offset
        b.store(values, self.number_at(b, pointer, offset), align=4)

    def prepare(self, b: Any, args: dict[str, Any], token: Any, head: Any) -> None:
        """Normalize and rotate a query or key; write a key or value to the buffer."""
        vector = self.number_at(
            b, args["qkv"], b.mul(b.add(b.mul(token, args["all_heads"]), head), self.i64(self.width))
        )
        is_query = b.icmp_unsigned("<", head, args["heads"])
        is_value = b.icmp_unsigned(">=", head, b.add(args["heads"], args["kv_heads"]))
        with b.if_then(b.not_(is_value)):
            weights = b.select(is_query, args["query_norm"], args["key_norm"])
            with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(weights, self.i64), self.i64(0))):
                self.normalize(b, vector, weights, args["eps"])
            half = b.udiv(args["rope_width"], self.i64(2))
            start = b.mul(token, args["rope_width"])
            with self.loop(b, self.i64(0), half, self.i64(LANES)) as lower:
                self.rotate(b, args, vector, start, lower, b.add(lower, half))
        with b.if_then(b.not_(is_query)):
            index = b.sub(head, args["heads"])
            row, position = (self.integer(b, args[name], token) for name in ("rows", "positions"))
            base = b.add(b.mul(row, args["row_size"]), b.mul(index, args["head_size"]))
            with b.if_else(is_value) as (value, key):
                with value:
                    start = b.add(base, b.mul(position, self.i64(self.width)))
                    for offset in range(0, self.width, LANES):
                        target = b.add(start, self.i64(offset))
                        self.put(b, self.numbers(b, vector, offset), args["buffer"], target)
                with key:
                    tile, lane = b.udiv(position, self.i64(TILE)), b.urem(position, self.i64(TILE))
                    start = b.add(b.add(base, b.mul(tile, self.i64(TILE * self.width))), lane)
                    with self.loop(b, self.i64(0), self.i64(self.width)) as dimension:
                        number = self.read(b, self.f32, vector, b.mul(dimension, self.i64(4)), 4)
                        target = b.add(start, b.mul(dimension, self.i64(TILE)))
                        b.store(number, self.number_at(b, args["buffer"], target), align=4)

    def normalize(self, b: Any, vector: Any, weights: Any, eps: Any) -> None:
        """Take the RMS norm of a head in place."""
        parts = [self.numbers(b, vector, offset) for offset in range(0, self.width, LANES)]
        squares = self.constant(self.floats, 0.0)
        for part in parts:
            squares = self.fma(b, part, part, squares)
        root = self.splat(b, self.root_mean(b, squares, self.f32(float(self.width)), eps))
        for part, offset in zip(parts, range(0, self.width, LANES), strict=True):
            self.put(b, b.fmul(b.fmul(part, root), self.numbers(b, weights, offset)), vector, offset)

    def rotate(self, b: Any, args: dict[str, Any], vector: Any, start: Any, lower: Any, upper: Any) -> None:
        """Rotate 16 pairs of numbers in place: x * cos + swap(x) * sin, as `rope.rotate` does."""
        numbers = [self.numbers(b, vector, index) for index in (lower, upper)]
        for index, number, other in zip((lower, upper), numbers, reversed(numbers), strict=True):
            cos, sin = (self.numbers(b, args[name], b.add(start, index)) for name in ("cos", "sin"))
            self.put(b, self.fma(b, other, sin, b.fmul(number, cos)), vector, index)

    def attend(self, b: Any, args: dict[str, Any], scores: Any, short: Any, head: Any) -> None:
        """Write the attention of a query head of a short token."""
        token = self.integer(b, args["short"], short)
        row, position = (self.integer(b, args[name], token) for name in ("rows", "positions"))
        kv_head = b.udiv(b.mul(head, args["kv_heads"]), args["heads"])
        place = b.mul(b.add(b.mul(token, args["all_heads"]), head), self.i64(self.width))
        query = self.number_at(b, args["qkv"], place)
        base = b.add(b.mul(row, args["row_size"]), b.mul(kv_head, args["head_size"]))
        keys = self.number_at(b, args["buffer"], base)
        values = self.number_at(b, keys, b.mul(args["kv_heads"], args["head_size"]))
        end = b.add(position, self.i64(1))
        is_cut = b.and_(
            b.icmp_unsigned("!=", args["window"], self.i64(0)), b.icmp_unsigned(">", end, args["window"])
        )
        first = b.select(is_cut, b.sub(end, args["window"]), self.i64(0))
        first_tile, end_tile = (
            b.udiv(first, self.i64(TILE)),
            b.udiv(b.add(end, self.i64(TILE - 1)), self.i64(TILE)),
        )
        largest = self.variable(b, self.constant(self.floats, float("-inf")))
        with self.loop(b, first_tile, end_tile) as tile:
            self.score_tile(b, args, query, keys, scores, (tile, first_tile, first, position), largest)
        top = self.splat(b, self.folded(b, b.load(largest, typ=self.floats), self.larger(b)))
        total = self.variable(b, self.constant(self.floats, 0.0))
        count = b.mul(b.sub(end_tile, first_tile), self.i64(TILE))
        with self.loop(b, self.i64(0), count, self.i64(LANES)) as index:
            score = self.numbers(b, scores, index)
            weight = self.exp(b, b.fsub(score, top))
            is_hidden = b.fcmp_ordered("==", score, self.constant(self.floats, float("-inf")))
            weight = b.select(is_hidden, self.constant(self.floats, 0.0), weight)
            self.put(b, weight, scores, index)
            b.store(b.fadd(b.load(total, typ=self.floats), weight), total)
        self.mix(
            b,
            scores,
            values,
            (first, end, b.mul(first_tile, self.i64(TILE))),
            total,
            self.number_at(
                b, args["out"], b.mul(b.add(b.mul(short, args["heads"]), head), self.i64(self.width))
            ),
        )

    def larger(self, b: Any) -> Callable[[Any, Any], Any]:
        return lambda first, second: b.select(b.fcmp_ordered(">", second, first), second, first)

    def score_tile(
        self, b: Any, args: dict[str, Any], query: Any, keys: Any, scores: Any, place: Any, largest: Any
    ) -> None:
        """Store the scores of a tile's keys, minus infinity for those that the token does not see."""
        tile, first_tile, first, position = place
        parts = range(0, TILE, LANES)
        sums = [self.variable(b, self.constant(self.floats, 0.0)) for _ in parts]
        start = b.mul(tile, self.i64(TILE * self.width))
        with self.loop(b, self.i64(0), self.i64(self.width), self.i64(_UNROLLED)) as dimension:
            for step in range(_UNROLLED):
                index = b.add(dimension, self.i64(step))
                number = self.splat(b, self.read(b, self.f32, query, b.mul(index, self.i64(4)), 4))
                line = b.add(start, b.mul(index, self.i64(TILE)))
                for part, total in zip(parts, sums, strict=True):
                    held = self.numbers(b, keys, b.add(line, self.i64(part)))
                    b.store(self.fma(b, number, held, b.load(total, typ=self.floats)), total)
        order = self.ir.Constant(self.vector(self.i64), list(range(LANES)))
        for part, total in zip(parts, sums, strict=True):
            number = b.add(b.mul(tile, self.i64(TILE)), self.i64(part))
            key = b.add(self.splat(b, number), order)
            is_seen = b.and_(
                b.icmp_unsigned("<=", key, self.splat(b, position)),
                b.icmp_unsigned(">=", key, self.splat(b, first)),
            )
            score = b.fmul(b.load(total, typ=self.floats), self.splat(b, args["scale"]))
            score = b.select(is_seen, score, self.constant(self.floats, float("-inf")))
            self.put(b, score, scores, b.sub(number, b.mul(first_tile, self.i64(TILE))))
            b.store(self.larger(b)(b.load(largest, typ=self.floats), score), largest)

    def mix(self, b: Any, weights: Any, values: Any, keys: Any, total: Any, out: Any) -> None:
        """Write the sum of the values of keys first .. end times their weights, divided by the total."""
        first, end, offset = keys
        parts = range(0, self.width, LANES)
        sums = [self.variable(b, self.constant(self.floats, 0.0)) for _ in parts]
        with self.loop(b, first, end) as key:
            weight = self.read(b, self.f32, weights, b.mul(b.sub(key, offset), self.i64(4)), 4)
            weight, start = self.splat(b, weight), b.mul(key, self.i64(self.width))
            for part, mixed in zip(parts, sums, strict=True):
                value = self.numbers(b, values, b.add(start, self.i64(part)))
                b.store(self.fma(b, weight, value, b.load(mixed, typ=self.floats)), mixed)
        divisor = self.splat(b, self.folded(b, b.load(total, typ=self.floats), b.fadd))
        for part, mixed in zip(parts, sums, strict=True):
            self.put(b, b.fdiv(b.load(mixed, typ=self.floats), divisor), out, part)
