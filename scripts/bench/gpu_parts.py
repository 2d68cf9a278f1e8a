"""Predicted parts of a layer on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_work import GpuWork
from predictions import BYTES, REACH, GpuCost, Shape, Weights

from gencli.models.gpus import Gpu

Product = Literal["cublas", "fixed", "int8", "int4"]

CHUNK = 512  # tokens of a prompt in a step
_KEYS = (512, 4096)
_ROWS = (1, 8, 32, 512)  # rows of products
_FORMATS: dict[Product, Weights] = {"cublas": "bf16", "fixed": "bf16", "int8": "int8", "int4": "int4"}
# Fraction of the card's FLOP/s reached by products of many rows: assumed, and from shared memory's bandwidth.
_MATMUL_REACH = {"cublas": 0.75, "fixed": 0.35, "int8": 0.35, "int4": 0.35}
_CHUNK_REACH = 0.5  # the same for PyTorch's attention of prompts
_TILE_INSTRUCTIONS = 8 * 32 * 500  # of all threads for 16 queries and 128 keys (from the machine code)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to measure: its kind and name, rows and width, and its work.

    `least`: minimum of bytes to move. `keys`: keys of each query of attention. `model`: name of a shape.
    """

    part: str
    what: str
    rows: int
    width: int
    work: GpuWork
    least: float
    keys: int = 0
    model: str = ""


def cost_of(
    line: Line, gpu: Gpu | None, *, us: float | None = None, read: float = 1.0, how: str = "graphs"
) -> GpuCost:
    """Return the record of a line, with the measured time if given. `read`: bytes/s of the card."""
    seconds = None if gpu is None else line.work.seconds(gpu)
    speed = None if us is None else line.least / (us * 1e-6)
    return GpuCost(
        part=line.part,
        what=f"{line.model} {line.what}".lstrip(),
        how=how,
        rows=line.rows,
        width=line.width,
        predicted_us=None if seconds is None else seconds * 1e6,
        measured_us=us,
        gb_per_s=None if speed is None else speed / 1e9,
        predicted_share=None if seconds is None or gpu is None else 100 * line.least / seconds / gpu.read,
        measured_share=None if speed is None else 100 * speed / read,
    )


def predict_parts(gpu: Gpu, shapes: Sequence[Shape], counts: Sequence[int]) -> Iterator[GpuCost]:
    """Yield the predictions of all parts of layers of the shapes."""
    for shape in shapes:
        for line in (*layer_lines(shape, counts), *product_lines(shape)):
            yield cost_of(line, gpu)


def layer_lines(shape: Shape, counts: Sequence[int]) -> Iterator[Line]:
    """Yield norm, rotation, gate and attention of decode steps by rows, and attention of a chunk."""
    heads, width = shape.heads + 2 * shape.kv_heads, shape.head_dim
    for rows in counts:
        moved = {
            "norm": (shape.hidden, 4 * shape.hidden),  # states and addend; their sum and its norm
            "rotary": (width, 2 * heads * width),
            "gate": (shape.inner, 3 * shape.inner),
        }
        for what, (size, numbers) in moved.items():
            least = 2.0 * rows * numbers
            yield Line("layer", what, rows, size, GpuWork(least, own=1), least, model=shape.name)
        for keys in _KEYS:
            least = _kv_bytes(shape, keys) * rows
            work = GpuWork(least, kernels=2, own=2)
            yield Line("layer", f"attention, {keys} keys", rows, width, work, least, keys, shape.name)
    for keys in _KEYS:
        yield from _chunk_lines(shape, keys)


def _chunk_lines(shape: Shape, keys: int) -> Iterator[Line]:
    """Yield attention of a prompt's last tokens by PyTorch, and in the summation order of decode steps."""
    width, group = shape.head_dim, shape.heads // shape.kv_heads
    seen = CHUNK * (keys - CHUNK / 2)  # keys of all queries
    flops = 4.0 * seen * shape.heads * shape.head_dim / _CHUNK_REACH
    least = _kv_bytes(shape, keys) + 4.0 * CHUNK * shape.heads * shape.head_dim
    work = GpuWork(least, flops=flops)
    yield Line("layer", f"chunk, {keys} keys", CHUNK, width, work, least, keys, shape.name)
    parts = seen / 128 * shape.heads
    tiles = parts / (max(1, 16 // group) * group)
    # Partial sums in float32 are written and read again.
    work = GpuWork(least + 8 * parts * width, kernels=2, own=2, instructions=tiles * _TILE_INSTRUCTIONS)
    yield Line("layer", f"chunk in one order, {keys} keys", CHUNK, width, work, least, keys, shape.name)


def product_sizes(shape: Shape) -> dict[str, tuple[int, int]]:
    """Return (outputs, inputs) of a layer's fused products."""
    inner = shape.heads * shape.head_dim
    return {
        "qkv": (inner + 2 * shape.kv_heads * shape.head_dim, shape.hidden),
        "out": (shape.hidden, inner),
        "gate_up": (2 * shape.inner, shape.hidden),
        "down": (shape.hidden, shape.inner),
    }


def product_lines(shape: Shape) -> Iterator[Line]:
    """Yield each product of a layer by kernel and rows."""
    for name, (outputs, inputs) in product_sizes(shape).items():
        for kernel, weights in _FORMATS.items():
            for rows in _ROWS:
                given, held = 2.0 * rows * (inputs + outputs), outputs * inputs * BYTES[weights]
                flops = 2.0 * rows * outputs * inputs / _MATMUL_REACH[kernel]
                work = GpuWork(held / REACH[weights] + given, own=int(kernel != "cublas"), flops=flops)
                what = f"{name} {kernel}"
                yield Line("product", what, rows, outputs, work, held + given, model=shape.name)


def _kv_bytes(shape: Shape, keys: int) -> float:
    """Return the bytes of keys and values of one layer, in 16 bits."""
    return 4.0 * keys * shape.kv_heads * shape.head_dim
