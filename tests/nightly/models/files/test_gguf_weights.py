"""Weights of four bits keep their bits: products, texts, memory, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from gencli.models.files.gguf_header import kept_bits
from tests.models.files.test_gguf_weights import matrix_file

PEAK = """
import re, sys, torch
from pathlib import Path
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.decoder.products.llvm_kernels import CodeFormat, kernel
from gencli.models.decoder.products.product_maker import KernelOptions
from gencli.models.files.gguf_weights import kept_maker
from gencli.models.files.gguf_weights import open_gguf

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

if missing() is None:
    kernel(CodeFormat(4, 8, "half"))  # a process loads the compiler once
path, rows = Path(sys.argv[1]), int(sys.argv[2])
names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
with open_gguf(path, torch.float32, torch.device("cpu")) as reader:
    make, before = kept_maker(path, KernelOptions()), peak()
    product = make.read(reader, names, (3 * rows, 4096))
print(product.nbytes, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is not known")
def test_reading_takes_the_kept_bits_and_slices_of_a_matrix(tmp_path: Path) -> None:
    path, rows = tmp_path / "model.gguf", 8192
    matrix_file(path, *["Q4_0"] * 3, rows=rows, inputs=4096)
    command = [sys.executable, "-c", PEAK, str(path), str(rows)]
    held, grown = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert held == 3 * rows * 4096 * kept_bits("cpu")["Q4_0"] / 8
    assert grown < 1.1 * held + 2**23
