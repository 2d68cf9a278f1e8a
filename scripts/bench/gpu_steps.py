"""Decode steps of random models of common shapes on a GPU."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from predictions import GpuCost, Shape, Weights, predicted_step, step_bytes
from random_models import MadeTokenizer
from safetensors.torch import save_file
from stopwatch import Stopwatch

from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import GencliError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.families import read_spec
from gencli.models.decoder.products.product_maker import KernelOptions
from gencli.models.files.checkpoint import read_checkpoint
from gencli.models.files.model_files import read_object
from gencli.models.gpus import GPUS, Gpu
from gencli.runtime.wiring import bare_engine
from processors.chain import Chain

_CHAIN = "temperature=0.8 | min_p=0.05 | top_k=50 | top_p=0.95"
_WARM = 32  # steps that are not timed: 64 steps behind 8 took 2 ms more each on an H200 than 100 behind 20


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run steps: options of DecoderRunner.load and of Engine."""

    name: str
    weights: Weights = "bf16"
    load: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)


WAYS = (
    Way("graphs, async"),
    Way("graphs, no async", engine={"run_ahead": False}),
    Way("eager, async", load={"cuda_graphs": "off"}),
    Way("graphs, async, invariant", load={"kernels": KernelOptions(invariant="on")}),
    Way("graphs, async", "int8"),
    Way("graphs, async", "int4"),
)


def measure_steps(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    shapes: Sequence[Shape],
    counts: Sequence[int],
    *,
    context: int,
    steps: int,
    ways: Sequence[Way] = WAYS,
) -> Iterator[GpuCost]:
    """Yield the cost of a decode step by shape, way and rows. `read`: the measured bandwidth, bytes/s.

    A way that fails on this machine has no figures; `how` has the reason.
    """
    for shape in shapes:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            write_random(Path(name), shape, device)
            for way in ways:
                for rows in counts:
                    yield _measured(gpu, read, watch, device, shape, Path(name), way, rows, context, steps)


def _measured(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    shape: Shape,
    folder: Path,
    way: Way,
    rows: int,
    context: int,
    steps: int,
) -> GpuCost:
    predicted = predicted_step(
        gpu or GPUS["H200"], shape, way.weights, rows, context, is_graph="graphs" in way.name
    )
    if gpu is None:
        predicted = replace(predicted, predicted_us=None, predicted_share=None, predicted_rate=None)
    try:
        engine = step_engine(folder, shape, way, device, rows, context, steps)
        seconds = _timed(engine, watch, steps)
    except (GencliError, RuntimeError) as error:  # for example too little memory
        return replace(predicted, how=f"{way.name}: {str(error).splitlines()[0][:60]}")
    speed = step_bytes(shape, way.weights, rows, context) / seconds
    return replace(
        predicted,
        how=way.name,
        measured_us=seconds * 1e6,
        gb_per_s=speed / 1e9,
        measured_share=100 * speed / read,
        measured_rate=rows / seconds,
    )


def step_engine(
    folder: Path, shape: Shape, way: Way, device: torch.device, rows: int, context: int, steps: int
) -> Engine:
    """Return an engine whose texts have been prefilled and can decode at least `steps` more steps."""
    config = read_object(folder / "config.json")
    runner = DecoderRunner.load(
        read_checkpoint(folder, config, read_spec(config)),
        dtype="bfloat16" if way.weights == "bf16" else "auto",
        device=str(device),
        max_lanes=rows,
        quantize="none" if way.weights == "bf16" else way.weights,
        **way.load,
    )
    # The tokenizer's end-of-text id is beyond the model's ids, so no text ends by it.
    engine = bare_engine(runner, MadeTokenizer(shape.vocab + 1), max_batch=rows, **way.engine)
    chain, limits = Chain.parse(_CHAIN), Limits(max_tokens=steps + 2 * _WARM)
    for row in range(rows):
        prompt = tuple((row + 31 * place) % shape.vocab for place in range(context))
        engine.submit(Request(str(row), prompt, chain, seed=row, limits=limits))
    begun: set[str] = set()
    while len(begun) < rows:
        begun |= {event.request for event in engine.step() if hasattr(event, "ids")}
    return engine


def _timed(engine: Engine, watch: Stopwatch, steps: int) -> float:
    """Return the mean seconds of a step."""
    for _ in range(_WARM):
        engine.step()
    watch.wait()
    start = time.perf_counter()
    for _ in range(steps):
        engine.step()
    watch.wait()
    return (time.perf_counter() - start) / steps


def write_random(folder: Path, shape: Shape, device: torch.device) -> None:
    """Write a checkpoint of the shape with random bfloat16 weights, a file for each layer."""
    generator = torch.Generator(device).manual_seed(0)

    def random(*size: int) -> torch.Tensor:
        made = torch.empty(size, dtype=torch.bfloat16, device=device)
        return made.normal_(0, size[-1] ** -0.5, generator=generator).cpu()

    hidden, inner = shape.hidden, shape.inner
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    norm = torch.ones(hidden, dtype=torch.bfloat16)
    around = {"model.embed_tokens.weight": random(shape.vocab, hidden), "model.norm.weight": norm}
    if not shape.is_tied:
        around["lm_head.weight"] = random(shape.vocab, hidden)
    files = {"around.safetensors": around}
    places = _write(folder, files)
    for layer in range(shape.layers):
        start = f"model.layers.{layer}."
        weights = {f"{start}{name}.weight": random(*size) for name, size in sizes.items()}
        norms = {
            f"{start}{name}.weight": norm.clone() for name in ("input_layernorm", "post_attention_layernorm")
        }
        places |= _write(folder, {f"layer-{layer}.safetensors": weights | norms})
    index = json.dumps({"metadata": {}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(shape.config()), encoding="utf-8")


def _write(folder: Path, files: Mapping[str, dict[str, torch.Tensor]]) -> dict[str, str]:
    """Write files of tensors; return the file of each tensor."""
    for name, tensors in files.items():
        save_file(tensors, folder / name)
    return {tensor: name for name, tensors in files.items() for tensor in tensors}
