"""Parts of a layer on a GPU, measured and predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import torch
from gpu_parts import Line, cost_of, layer_lines, product_lines, product_sizes
from predictions import GpuCost, Shape
from stopwatch import Stopwatch
from torch import Tensor

from gencli.models.decoder.kernels.attention import attend_chunk, attend_rows
from gencli.models.decoder.kernels.layer_kernels import Norm, added_normed, gated, rotate_and_store
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import FixedProduct, PlainProduct, Product
from gencli.models.decoder.products.product_maker import FixedInt4Product, FixedInt8Product
from gencli.models.gpus import Gpu

_Call = Callable[[], object]
_TURN = 1 << 28  # bytes of weights, keys or values read in turns: more than a GPU's cache
_MAX_COPIES = 20


def measure_parts(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    shapes: Sequence[Shape],
    counts: Sequence[int],
) -> Iterator[GpuCost]:
    """Yield the cost of each part of a layer of the shapes. `read`: the measured bandwidth, bytes/s.

    A part that fails on this machine has no figures; `how` has the reason.
    """
    for shape in shapes:
        for line in layer_lines(shape, counts):
            yield _measured(line, gpu, read, watch, partial(_layer_call, shape, line, device))
        for line in product_lines(shape):
            yield _measured(line, gpu, read, watch, partial(_product_call, shape, line, device))


def _measured(
    line: Line, gpu: Gpu | None, read: float, watch: Stopwatch, make: Callable[[], _Call]
) -> GpuCost:
    try:
        return cost_of(line, gpu, us=watch.us(make()), read=read)
    except RuntimeError as error:  # for example too little memory
        return cost_of(line, gpu, how=str(error).splitlines()[0][:60])


def _random(device: torch.device, *size: int) -> Tensor:
    return torch.randn(size, dtype=torch.bfloat16, device=device)


def _in_turns(call: Callable[[Any], object], given: Sequence[Any]) -> _Call:
    """Return a call that uses another one of `given` each time, so that none is in a cache."""
    turns = cycle(given)
    return lambda: call(next(turns))


def _copies(nbytes: int) -> range:
    return range(max(1, min(_MAX_COPIES, _TURN // nbytes)))


def _layer_call(shape: Shape, line: Line, device: torch.device) -> _Call:
    """Return the call of a part between two products."""
    rows = line.rows
    if line.what == "norm":
        states, more = _random(device, rows, shape.hidden), _random(device, rows, shape.hidden)
        norm = Norm(_random(device, shape.hidden), 1e-5)
        return lambda: added_normed(states, more, None, 1.0, norm)
    if line.what == "gate":
        made = _random(device, rows, 2 * shape.inner)
        return lambda: gated(made, "silu")
    if line.what == "rotary":
        return _rotary(shape, rows, device)
    return _attention(shape, line, device)


def _rotary(shape: Shape, rows: int, device: torch.device) -> _Call:
    made = _random(device, rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
    buffer = _buffer(shape, rows, 1, device)
    cells = torch.arange(rows, device=device), torch.zeros(rows, dtype=torch.int64, device=device)
    rope = tuple(torch.ones(rows, 1, shape.head_dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    return lambda: rotate_and_store(made, buffer, cells, (rope[0], rope[1]), None, is_whole=False)


def _attention(shape: Shape, line: Line, device: torch.device) -> _Call:
    """Return attention of decode steps, or of the last tokens of a prompt."""
    rows, keys = line.rows, line.keys
    is_chunk = line.what.startswith("chunk")
    queries = _random(device, rows, shape.heads, shape.head_dim)
    lanes = 1 if is_chunk else rows
    nbytes = 4 * lanes * keys * shape.kv_heads * shape.head_dim
    buffers = [_buffer(shape, lanes, keys, device) for _ in _copies(nbytes)]
    options: dict[str, Any] = {"window": None, "scale": shape.head_dim**-0.5, "cap": None}
    if line.what.startswith("chunk, "):
        halves = [buffer[0].transpose(0, 1).chunk(2, 1) for buffer in buffers]
        return _in_turns(lambda held: attend_chunk(queries, *held, **options), halves)
    if is_chunk:
        places = torch.arange(keys - rows, keys, device=device)
        of_rows, options["together"] = torch.zeros_like(places), 32
    else:
        of_rows = torch.arange(rows, device=device)
        places = torch.full_like(of_rows, keys - 1)
    return _in_turns(lambda buffer: attend_rows(queries, buffer, of_rows, places, keys, **options), buffers)


def _buffer(shape: Shape, lanes: int, keys: int, device: torch.device) -> Tensor:
    """Return keys and values [lanes, 2 * Hkv, keys, D] in their layout on a GPU."""
    return _random(device, lanes, keys, 2 * shape.kv_heads, shape.head_dim).transpose(1, 2)


def _product_call(shape: Shape, line: Line, device: torch.device) -> _Call:
    """Return the call of a product; weights are read in turns."""
    name, kernel = line.what.split()
    outputs, inputs = product_sizes(shape)[name]
    products = [_product(kernel, outputs, inputs, device) for _ in _copies(int(line.least))]
    given = _random(device, line.rows, inputs)
    return _in_turns(lambda product: product(given), products)


def _product(kernel: str, outputs: int, inputs: int, device: torch.device) -> Product:
    if kernel in ("cublas", "fixed"):
        weight = _random(device, outputs, inputs)
        return PlainProduct(weight) if kernel == "cublas" else FixedProduct(weight)
    if kernel == "int8":
        codes = torch.ones(outputs, inputs, dtype=torch.int8, device=device)
        return FixedInt8Product(Int8Weights(codes, torch.ones(outputs, device=device)))
    codes = torch.full((outputs, inputs // 2), 0x77, dtype=torch.uint8, device=device)
    scales, zeros = _random(device, outputs, inputs // 32), _random(device, outputs, inputs // 32)
    return FixedInt4Product(Int4Weights(codes, scales, zeros))
