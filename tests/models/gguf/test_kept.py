"""Weights of four bits keep their bits: products, texts, memory, and what is refused."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as hf

from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.decoder.products.maker import KernelOptions
from gencli.models.files.card import read_card
from gencli.models.files.locate import bundled_folder
from gencli.models.gguf.groups import grouped
from gencli.models.gguf.kinds import KINDS
from gencli.models.gguf.maker import kept_maker, wide_dtype
from gencli.models.gguf.plan import KEPT, weight_format
from gencli.models.gguf.reader import open_gguf
from gencli.models.memory import weight_bytes
from gencli.text.tokenizer import HFTokenizer
from tests.helpers.gguf_files import random_blocks, write_model
from tests.models.cases import case
from tests.models.gguf.test_reader import built, finish, load
from tests.models.loops import Job, decode
from tests.models.test_memory import parts
from tests.models.tiny_models import base

CPU = torch.device("cpu")
RECORDS = (
    "Sentence: Nora is a 41 year old pilot from Quito.\nJSON:",
    "Question: Is Brindle a town?\nAnswer:",
    "Question: Who is the mayor of Brindle?\nAnswer:",
)
KIND = {kind.name: kind for kind in KINDS.values()}


def model(**more: Any) -> Any:
    sizes = base(hidden_size=256, intermediate_size=256, num_attention_heads=4, head_dim=64)
    return built(hf.LlamaConfig(**{**sizes, **more}))


def matrix_file(path: Path, *kinds: str, rows: int = 96, inputs: int = 512) -> torch.Tensor:
    """Write queries, keys and values of a layer in the formats; return their numbers, [3 * rows, inputs]."""
    writer = gguf.GGUFWriter(path, "qwen2")
    wide = []
    for part, kind in zip("qkv", kinds, strict=True):
        number = gguf.GGMLQuantizationType[kind]
        blocks = random_blocks(kind, (rows, inputs))
        writer.add_tensor(f"blk.0.attn_{part}.weight", blocks, raw_dtype=number)
        wide.append(torch.from_numpy(gguf.quants.dequantize(blocks, number)))
    finish(writer)
    return torch.cat(wide)


def test_groups_are_the_numbers_of_the_blocks() -> None:
    for kind in sorted(KEPT):
        with case(kind):
            blocks = random_blocks(kind, (70, 512))
            wide = torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind]))
            made = grouped(blocks, KIND[kind])
            codes = made.unpacked(slice(None)).view(70, -1, 32) - 8
            found = codes * made.scales.float()[..., None] + made.zeros.float()[..., None]
            # A scale or zero is rounded to the nearest number of eight bits: by one part in 256 at most.
            most = (
                codes.abs() * made.scales.float().abs()[..., None] + made.zeros.float().abs()[..., None]
            ) / 250
            assert ((found - wide.view_as(found)).abs() <= most).all()


def test_a_product_is_that_of_widened_numbers(tmp_path: Path) -> None:
    for kinds in [*((kind,) * 3 for kind in sorted(KEPT)), ("Q4_K", "Q4_0", "Q6_K")]:
        with case(kinds):
            wide = matrix_file(tmp_path / "model.gguf", *kinds)
            make = kept_maker(tmp_path / "model.gguf", KernelOptions())
            names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
            with open_gguf(tmp_path / "model.gguf", torch.float32, CPU) as reader:
                product = make.read(reader, names, (288, 512))
                assert reader.unread == set()
            given = torch.randn(5, 512, generator=torch.Generator().manual_seed(0))
            true, found = given.double() @ wide.double().T, product(given)
            assert (found - true).norm() < 0.004 * true.norm()
            if make.is_invariant:
                assert torch.equal(product(given[:1]), found[:1])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_a_trained_model_says_the_same_as_with_widened_numbers(tmp_path: Path, kind: str) -> None:
    folder = bundled_folder("tiny")
    write_model(tmp_path / "model.gguf", hf.AutoModelForCausalLM.from_pretrained(folder), kind)
    kept, wide = load(tmp_path / "model.gguf", dtype="auto"), load(tmp_path / "model.gguf")
    assert (kept.spec.quantization, kept.spec.kernels, kept.spec.notices) == (kind, ("int4pack",), ())
    assert (wide.spec.quantization, kept.spec.dtype) == ("", torch.float32)
    prompts = [HFTokenizer.load(folder).encode(text) for text in RECORDS]
    jobs = [Job(lane, prompt) for lane, prompt in enumerate(prompts)]
    assert decode(kept, jobs, count=12) == decode(wide, jobs, count=12)
    feed = StepPlan((Feed(0, 0, tuple(prompts[0]), len(prompts[0])),))
    found, true = kept.forward(feed), wide.forward(feed)
    assert (found - true).norm() < 0.01 * true.norm()


@pytest.mark.parametrize(("kind", "tied"), [("Q4_0", False), ("Q4_K", True)])
def test_memory_is_that_of_the_kept_bits(tmp_path: Path, kind: str, tied: bool) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(tie_word_embeddings=tied, vocab_size=20_480), kind)
    runner = load(path, dtype="auto")
    planned = weight_bytes(read_card(path), torch.float32, CPU, "kept")
    assert sum(parts(runner._decoder)) == pytest.approx(planned, rel=0.05)
    assert planned < 0.7 * read_card(path).weights.parameters
    assert weight_bytes(read_card(path), torch.float32, CPU, "none") > 4 * planned


PEAK = """
import re, sys, torch
from pathlib import Path
from gencli.models.decoder.products.maker import KernelOptions
from gencli.models.gguf.maker import kept_maker
from gencli.models.gguf.reader import open_gguf

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

path, rows = Path(sys.argv[1]), int(sys.argv[2])
names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
with open_gguf(path, torch.float32, torch.device("cpu")) as reader:
    make, before = kept_maker(path, KernelOptions()), peak()
    product = make.read(reader, names, (3 * rows, 4096))
print(product.nbytes, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is not known")
def test_reading_takes_the_kept_bits_and_one_matrix(tmp_path: Path) -> None:
    path, rows = tmp_path / "model.gguf", 8192
    matrix_file(path, *["Q4_0"] * 3, rows=rows, inputs=4096)
    command = [sys.executable, "-c", PEAK, str(path), str(rows)]
    held, grown = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert held == 3 * rows * 4096 * 5 // 8
    assert grown < 2 * held + 2**27  # the kept bits, the matrix as it is read, and slices of it


def test_another_format_or_device_widens(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(), "Q4_0")
    assert weight_format(path, "none", dtype="auto", device="cpu") == "kept"
    assert weight_format(path, "none", dtype="bfloat16", device="cpu") == "none"
    assert weight_format(path, "none", dtype="auto", device="mps") == "none"
    assert weight_format(path, "int8", dtype="auto", device="cpu") == "int8"
    assert load(path, dtype="auto", quantize="int8").spec.quantization == "int8"
    with pytest.raises(ModelError, match="`kernel` is packed, but weights of four bits"):
        load(path, dtype="auto", kernels=KernelOptions(kernel="packed"))
    write_model(path, model(), "Q8_0")
    spec = load(path, dtype="auto").spec
    assert spec.quantization == ""
    assert any(notice.startswith("Q8_0 is widened to") for notice in spec.notices)
    matrix_file(path, "Q4_0", "Q4_0", "Q6_K")
    names = kept_maker(path, KernelOptions()).names
    assert (len(names), "int4pack" in names) == (2, True)
    assert wide_dtype() in (torch.bfloat16, torch.float32)


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(), "Q4_0")
    tensors = {one.name: one for one in gguf.GGUFReader(path).tensors}
    place = tensors["blk.1.ffn_up.weight"].data_offset
    data = bytearray(path.read_bytes())
    data[place : place + 2] = np.array([math.inf], np.float16).tobytes()
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"layers.1.*have values that are no finite numbers"):
        load(path, dtype="auto")
