"""A folder with quantized weights: the same bits as quantizing at load, and errors for damaged ones.

Packed weights compute what plain ones do, and are used for large projections alone.
"""

from pathlib import Path

import pytest
import torch
from random_models import random_llama

from gencli.models import quantized_copy as module
from gencli.models.decoder.products.dense_products import PackedLinear, can_pack, pack
from gencli.models.files.model_files import Quantize
from gencli.models.quantized_copy import quantize_model
from tests.models.decoder.test_decoder_layers import logits
from tests.models.native import load_native
from tests.models.tiny_models import build_native


@pytest.mark.parametrize(
    ("kind", "quantize"), [("biased", "int8"), ("qwen3_moe", "int4"), ("gpt_oss", "int8")]
)
def test_the_folder_gives_the_bits_of_quantizing_at_load(
    kind: str, quantize: Quantize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHARD", 10_000)
    build_native(kind).bfloat16().save_pretrained(tmp_path / "before")
    written = quantize_model(str(tmp_path / "before"), tmp_path / "after", quantize)
    assert len(list(written.folder.glob("*.safetensors"))) > 1
    runner = load_native(written.folder)
    here = load_native(tmp_path / "before", quantize=quantize)
    assert (runner.spec.quantization, runner.spec.notices) == (quantize, here.spec.notices)
    for made, expected in zip(logits(runner, [0, 1, 2]), logits(here, [0, 1, 2]), strict=True):
        assert torch.equal(made, expected)


needs_packing = pytest.mark.skipif(not can_pack(), reason="this machine has no such product")


@needs_packing
def test_a_packed_model_has_the_same_logits():
    sizes = {"hidden_size": 384, "intermediate_size": 1024, "vocab_size": 300}
    plain, packed = random_llama(**sizes), pack(random_llama(**sizes))
    kinds = {name.split(".")[-1] for name, part in packed.named_modules() if isinstance(part, PackedLinear)}
    assert kinds == {"gate_proj", "up_proj", "down_proj"}
    ids = torch.arange(24).view(1, 24)
    with torch.inference_mode():
        torch.testing.assert_close(packed(ids).logits, plain(ids).logits, atol=1e-5, rtol=1e-5)
