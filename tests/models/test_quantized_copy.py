"""A folder with quantized weights: the same bits as quantizing at load, and errors for damaged ones.

Packed weights compute what plain ones do, and are used for large projections alone.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import load_file, save_file
from torch import nn

from gencli.errors import ModelError, UsageError
from gencli.models.backend import choose_backend
from gencli.models.decoder.products.dense_products import PackedLinear, can_pack, pack
from gencli.models.files.checkpoint import open_checkpoint
from gencli.models.quantized_copy import quantize_model
from tests.models.cases import case
from tests.models.native import load_native
from tests.models.tiny_models import build

Q, DOWN = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path / "before")
    return quantize_model(str(tmp_path / "before"), tmp_path / "after", "int4").folder


def test_nothing_is_overwritten_and_nothing_quantized_twice(folder: Path) -> None:
    with pytest.raises(UsageError, match="after exists already"):
        quantize_model(str(folder.parent / "before"), folder, "int8")
    with pytest.raises(ModelError, match="quantized to 4 bits already"):
        quantize_model(str(folder), folder.parent / "again", "int8")
    assert not (folder.parent / "again").exists()


def test_a_model_that_cannot_be_quantized_leaves_no_folder(tmp_path: Path) -> None:
    before = tmp_path / "before"
    build("mamba").save_pretrained(before)
    with pytest.raises(ModelError, match="which takes gencli's own decoder, but models of type mamba"):
        quantize_model(str(before), tmp_path / "after", "int8")
    build("llama").save_pretrained(before)
    tensors = load_file(before / "model.safetensors")
    save_file({**tensors, Q: tensors[Q][1:]}, before / "model.safetensors")
    with pytest.raises(ModelError, match="have the shape"):
        quantize_model(str(before), tmp_path / "after", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["before"]


def test_the_folder_says_what_it_was_made_of_and_transformers_does_not_run_it(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    found = config["quantization_config"]
    assert (found["quant_method"], found["bits"], found["source"]["name"]) == ("gencli", 4, "before")
    assert len(found["source"]["sha256"]) == 64
    for options in ({"backend": "transformers"}, {"backend": "auto", "trust_remote_code": True}):
        with pytest.raises(ModelError, match="weights of 4 bits, which takes gencli's own decoder"):
            choose_backend(config=config, **options)  # type: ignore[arg-type]
    open_checkpoint(str(folder), trust_remote_code=False)  # its check of the configuration knows the method


def test_damaged_weights_are_errors_of_the_model(folder: Path) -> None:
    changes: list[tuple[str, Any, str]] = [
        (Q, None, "lacks the weights"),
        (f"{Q}_scale", None, "lacks the weights"),
        (Q, lambda tensor: tensor[:, 1:], "have the shape"),
        (Q, lambda tensor: tensor.view(torch.int8), "are stored as int8, but have to be uint8"),
        (f"{Q}_scale", lambda tensor: tensor.float(), "are stored as float32, but have to be bfloat16"),
        (f"{Q}_zero", lambda tensor: tensor[0, 0], "have the shape"),
        (f"{DOWN}_zero", lambda tensor: tensor * torch.nan, "no finite numbers"),
        (f"{DOWN}_scale", lambda tensor: tensor + torch.inf, "no finite numbers"),
        ("lm_head.weight", lambda tensor: tensor.float(), "are stored as float32, but have to be int8"),
        ("lm_head.weight_scale", lambda tensor: tensor[None], "have the shape"),
    ]
    whole = (folder / "model.safetensors").read_bytes()
    for name, damage, said in changes:
        tensors = from_bytes(whole)
        old = tensors.pop(name)
        if damage is not None:
            tensors[name] = damage(old).contiguous()
        save_file(tensors, folder / "model.safetensors")
        with case(name, said), pytest.raises(ModelError, match=said):
            load_native(folder)


def test_another_format_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    for change in ({"bits": 3}, {"bits": True}, {"bits": "8"}, {"version": 2}, {"bits": None}):
        changed = {**config, "quantization_config": {**config["quantization_config"], **change}}
        (folder / "config.json").write_text(json.dumps(changed))
        with case(change), pytest.raises(ModelError, match="Quantize|quantized to"):
            load_native(folder)


needs_packing = pytest.mark.skipif(not can_pack(), reason="this machine has no such product")


@needs_packing
def test_a_packed_layer_computes_what_the_plain_one_does():
    for rows, bias in product([1, 2, 5, 16, 70], [False, True]):
        with case(rows, bias):
            torch.manual_seed(0)
            plain = nn.Linear(512, 768, bias=bias)
            given = torch.randn(1, rows, 512)
            with torch.inference_mode():
                torch.testing.assert_close(PackedLinear(plain)(given), plain(given), atol=1e-5, rtol=1e-5)


@needs_packing
def test_other_types_stay_as_they_are():
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            model = pack(nn.ModuleDict({"q_proj": nn.Linear(512, 768, dtype=dtype)}))
            assert type(model["q_proj"]) is nn.Linear
