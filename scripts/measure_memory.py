"""Measure the memory that a model takes on the decoder, and compare it with what is planned (Linux).

    python scripts/measure_memory.py MODEL [--texts 8] [--tokens 600]

Each number format is measured in a process of its own, in MiB; a folder of `gencli quantize` has one.
"before" is the memory of the process before the model is loaded: Python, PyTorch and its libraries. "peak
at load" is the highest resident memory until the model is loaded, less that; the ratio is over the bytes of
the weights as they run, counted in the loaded decoder. "peak of a run" is the highest after the texts were
read and 16 tokens of each computed; "planned" is what `gencli models show MODEL --memory` says.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

# Number format of the activations, of keys and values, and of quantized weights.
FORMATS = (
    ("float32", "auto", "none"),
    ("float32", "bfloat16", "none"),
    ("bfloat16", "auto", "none"),
    ("float32", "auto", "int8"),
    ("float32", "auto", "int4"),
)
STEPS, CHUNK = 16, 512
_MIB = 2**20


def status(key: str) -> int:
    """Return a size of this process in bytes, as Linux counts it."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def held(value: Any) -> int:
    """Return the bytes of all weights in a part of a decoder, as they lie in memory."""
    if isinstance(value, tuple):
        return sum(map(held, value))
    if is_dataclass(value):
        parts = (getattr(value, one.name) for one in fields(value) if one.name not in ("spec", "tables"))
        return sum(map(held, parts))
    return int(getattr(value, "nbytes", 0))


def run(runner: Any, texts: int, tokens: int) -> None:
    """Read `texts` texts in chunks, and compute the last of their `tokens` tokens one by one."""
    from gencli.core.request import Feed, StepPlan

    lengths = [0] * texts
    for lane in range(texts):
        while lengths[lane] < tokens - STEPS:
            count = min(CHUNK, tokens - STEPS - lengths[lane])
            runner.forward(StepPlan((Feed(lane, lengths[lane], tuple(range(count)), 1),)))
            lengths[lane] += count
    for _ in range(STEPS):
        runner.forward(StepPlan(tuple(Feed(lane, lengths[lane], (7,)) for lane in range(texts))))
        lengths = [length + 1 for length in lengths]


def measure(model: str, dtype: str, kv_dtype: str, quantize: Any, texts: int, tokens: int) -> str:
    """Return a row of the table."""
    import torch

    from gencli.models.decoder.decoder import DecoderRunner
    from gencli.models.decoder.families import read_spec
    from gencli.models.files.checkpoint import read_checkpoint, read_folder
    from gencli.models.files.model_card import read_card
    from gencli.models.model_memory import need_of

    folder, config = read_folder(model)
    checkpoint = read_checkpoint(folder, config, read_spec(config))
    before, start = status("VmRSS"), time.perf_counter()
    runner = DecoderRunner.load(
        checkpoint, dtype=dtype, kv_dtype=kv_dtype, quantize=quantize, device="cpu", max_lanes=texts
    )
    seconds, at_load = time.perf_counter() - start, status("VmHWM") - before
    weights = held(runner._decoder)
    run(runner, texts, tokens)
    spec = runner.spec
    need = need_of(
        read_card(folder),
        dtype=spec.dtype,
        device=torch.device("cpu"),
        lanes=texts,
        tokens=tokens,
        kv_dtype=spec.kv_dtype,
        quantize=quantize,
    )
    peak, planned = status("VmHWM"), before + need.total
    name = spec.quantization or dtype
    if spec.quantization and quantize == "none":
        name += " from a folder"
    cells = [
        name if kv_dtype == "auto" else f"{name}, {kv_dtype} keys and values",
        f"{weights / _MIB:.0f}",
        f"{before / _MIB:.0f}",
        f"{at_load / _MIB:.0f}",
        f"{at_load / weights:.2f}",
        f"{seconds:.1f} s",
        f"{(need.kv or 0) / _MIB:.0f}",
        f"{peak / _MIB:.0f}",
        f"{planned / _MIB:.0f} ({planned / peak - 1:+.1%})",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, or with --row one row of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--row", nargs=3, metavar=("DTYPE", "KV", "QUANTIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(measure(given.model, *given.row, given.texts, given.tokens))
        return
    from gencli.models.files.checkpoint import read_folder
    from gencli.models.files.model_files import is_own

    print("| format | weights | before | peak at load | ratio | load | KV cache | peak of a run | planned |")
    print("|---|---|---|---|---|---|---|---|---|")
    sizes = ("--texts", str(given.texts), "--tokens", str(given.tokens))
    for row in FORMATS[:1] if is_own(read_folder(given.model)[1]) else FORMATS:
        command = [sys.executable, __file__, given.model, *sizes, "--row", *row]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
