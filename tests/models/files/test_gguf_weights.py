"""Weights of four bits keep their bits: products, texts, memory, and what is refused."""

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as hf

from gencli.errors import ModelError
from gencli.models.decoder.products.product_maker import KernelOptions
from gencli.models.files.gguf_header import KINDS, kept_bits, weight_format, widening
from gencli.models.files.gguf_weights import coded, kept_maker, open_gguf, wide_dtype
from tests.helpers.gguf_files import random_blocks, write_model
from tests.models.cases import case
from tests.models.files.test_gguf_header import built, finish, load_gguf
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


def test_codes_are_the_numbers_of_the_blocks() -> None:
    for kind in sorted(kept_bits("cpu")):
        with case(kind):
            blocks = random_blocks(kind, (70, 512))
            wide = torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind]))
            made = coded(blocks, KIND[kind])
            codes = (made.codes.float() - made.middle).view(*made.scales.shape, -1)
            numbers = (codes * made.scales.float()[..., None]).view(70, -1, 32)
            if made.offsets is not None:
                numbers += made.offsets.float()[..., None]
            assert torch.allclose(numbers.view_as(wide), wide, rtol=1e-6, atol=1e-7 * wide.abs().max())


def test_a_product_is_that_of_widened_numbers(tmp_path: Path) -> None:
    kinds_of = [
        *((kind,) * 3 for kind in sorted(kept_bits("cpu"))),
        ("Q4_K", "Q4_0", "Q6_K"),
        ("Q4_1", "Q4_0", "Q3_K"),
    ]
    for kinds in kinds_of:
        with case(kinds):
            wide = matrix_file(tmp_path / "model.gguf", *kinds)
            make = kept_maker(tmp_path / "model.gguf", KernelOptions())
            names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
            with open_gguf(tmp_path / "model.gguf", torch.float32, CPU) as reader:
                product = make.read(reader, names, (288, 512))
                assert reader.unread == set()
            given = torch.randn(5, 512, generator=torch.Generator().manual_seed(0))
            true, found = given.double() @ wide.double().T, product(given)
            # Activations are rounded to 16 bits, those of widened matrices to bfloat16.
            assert (found - true).norm() < (0.004 if "Q3_K" in kinds else 0.0001) * true.norm()
            if make.is_invariant:
                assert torch.equal(product(given[:1]), found[:1])


def test_another_format_or_device_widens(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(), "Q4_0")
    assert weight_format(path, "none", dtype="auto", device="cpu") == "kept"
    assert weight_format(path, "none", dtype="bfloat16", device="cpu") == "none"
    assert weight_format(path, "none", dtype="auto", device="mps") == "none"
    assert weight_format(path, "int8", dtype="auto", device="cpu") == "int8"
    assert load_gguf(path, dtype="auto", quantize="int8").spec.quantization == "int8"
    with pytest.raises(ModelError, match="`kernel` is packed, but weights of four bits"):
        load_gguf(path, dtype="auto", kernels=KernelOptions(kernel="packed"))
    matrix_file(path, "Q4_0", "Q4_0", "Q3_K")
    (notice,) = widening(path, "bfloat16", 2, kept_bits("cpu"))
    assert notice.startswith("Q3_K is widened to bfloat16")
    names = kept_maker(path, KernelOptions()).names
    assert (len(names), "compiled" in names) == (2, True)
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
        load_gguf(path, dtype="auto")
