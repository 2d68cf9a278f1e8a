"""Measure the memory that loading weights of few bits takes at its peak, beside the weights as held (Linux).

    PYTHONPATH=. python scripts/bench/load_memory.py [MODEL.gguf] [--folder FOLDER]

MODEL is a GGUF file of weights as they are stored, FOLDER a model in float32; by default SmolLM2 of `make
test-real`. The folder is rounded while it is loaded, and written by `gencli quantize` and loaded from there.
Each load has a process of its own. "peak" is the highest resident memory until the weights are loaded, less
that before, when libraries are imported and kernels compiled; mapped files are apart ("mapped"). "after" is
what stays. MiB; the ratio is that of the peak over the weights.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

from measure_memory import held, status

_MIB = 2**20


def compile_kernels() -> None:
    """Make and call a small product of each format, so that its kernel and threads are there."""
    import torch

    from gencli.models.decoder.products.coded_weights import Int4Weights
    from gencli.models.decoder.products.compiled_products import CompiledProduct
    from gencli.models.files.gguf_header import KINDS, kept_bits
    from gencli.models.files.gguf_weights import coded
    from tests.helpers.gguf_files import random_blocks

    kinds = [kind for kind in KINDS.values() if kind.name in kept_bits("cpu")]
    weights: list[Any] = [coded(random_blocks(kind.name, (64, 256)), kind) for kind in kinds]
    weights.append(Int4Weights.of((64, 256), [torch.ones(64, 256)]))
    for each in weights:
        CompiledProduct(each)(torch.ones(1, 256))


def measure(model: str, quantize: Any) -> str:
    """Return the numbers of a load in this process."""
    from gencli.models.backend import choose_backend
    from gencli.models.decoder.decoder import DecoderRunner
    from gencli.models.files.checkpoint import read_checkpoint, read_folder

    folder, config = read_folder(model)
    checkpoint = read_checkpoint(folder, config, choose_backend("auto", config, quantize=quantize)[0])
    compile_kernels()
    anonymous, mapped = status("RssAnon"), status("RssFile")
    runner = DecoderRunner.load(checkpoint, quantize=quantize, device="cpu")
    peak, libraries = status("VmHWM"), status("RssFile")
    weights = held(runner._decoder)
    return (
        f"{weights / _MIB:8.1f} {(peak - anonymous - libraries) / _MIB:8.1f} "
        f"{(peak - anonymous - libraries) / weights:6.2f} {(status('RssAnon') - anonymous) / _MIB:8.1f} "
        f"{(libraries - mapped) / _MIB:8.1f}"
    )


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--load"]:
        print(measure(*sys.argv[2:]))
        return
    from gencli.models.quantized_copy import quantize_model
    from tests.real.models import SMOL, folder, gguf

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--folder")
    asked = parser.parse_args()
    file, wide = asked.model or str(gguf(SMOL)), asked.folder or str(folder(SMOL))
    print(f"{'':24}  weights     peak  ratio    after   mapped")
    with TemporaryDirectory() as where:
        loads = {"GGUF as stored": (file, "none")}
        for bits in ("int8", "int4"):
            quantize_model(wide, Path(where, bits), bits)
            loads[f"--quantize {bits}"] = (wide, bits)
            loads[f"folder of {bits}"] = (str(Path(where, bits)), "none")
        for name, words in loads.items():
            print(f"{name:24} ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--load", *words], check=True)


if __name__ == "__main__":
    main()
