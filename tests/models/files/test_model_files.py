"""Model folders that are wrong or hostile: each is refused with its own reason, before weights are read.

Tensors are read from safetensors files by their offsets; a header that lies is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gencli.errors import ModelError
from gencli.models.decoder.weight_readers import open_tensors
from gencli.models.files.checkpoint import open_checkpoint
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import declared_template, read_card
from gencli.models.files.model_files import read_table
from gencli.templates import chat_templates as renderer_module
from gencli.text.tokenizer import HFTokenizer
from processors.child import Child
from tests.models.cases import case

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
TURN = [{"role": "user", "content": "hi"}]


@pytest.fixture
def folder(tmp_path):
    """A copy of the bundled model."""
    return Path(shutil.copytree(bundled_folder("tiny-draft"), tmp_path / "model"))


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refusal(folder):
    with pytest.raises(ModelError) as caught:
        open_checkpoint(str(folder), trust_remote_code=False)
    return caught.value.message


def test_a_model_that_fits_is_opened(folder):
    assert open_checkpoint(str(folder), trust_remote_code=False).stored == "F32"


def test_a_value_that_no_model_has_is_named(folder):
    path = folder / "config.json"
    whole = path.read_text()
    for key, value in [
        ("num_hidden_layers", -1),
        ("num_hidden_layers", "3"),
        ("num_hidden_layers", 2.5),
        ("num_hidden_layers", True),
        ("hidden_size", 0),
        ("num_attention_heads", -2),
        ("vocab_size", 10**18),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", 10**18),
        ("eos_token_id", "end"),
        ("eos_token_id", [0, {}]),
        ("dtype", "nonsense"),
        ("torch_dtype", "nn"),
        ("quantization_config", {"quant_method": "x"}),
        ("quantization_config", "x"),
        ("text_config", "x"),
    ]:
        path.write_text(whole)
        change(path, **{key: value})
        with case(key, value):
            message = refusal(folder)
            assert key.removeprefix("torch_") in message
            assert "config.json" in message


def test_a_file_that_is_nested_too_deep_is_named(folder):
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        whole = (folder / name).read_text()
        (folder / name).write_text("[" * 200_000)
        assert name in refusal(folder)
        (folder / name).write_text(whole)


FILES = [
    *("config.json", "generation_config.json", "special_tokens_map.json", "tokenizer.json"),
    *("added_tokens.json", "merges.txt", "chat_template.jinja", "additional_chat_templates/a.jinja"),
    "model.safetensors",
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_named(tmp_path, kind):
    for name in FILES:
        folder = Path(shutil.copytree(bundled_folder("tiny-draft"), tmp_path / name.replace("/", " ")))
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        if kind == "a pipe":
            os.mkfifo(folder / name)
        else:
            (folder / name).symlink_to("/dev/zero")
        with case(name):
            assert kind in refusal(folder)
            if name != "config.json":
                with pytest.raises(ModelError, match=kind):
                    HFTokenizer.load(folder)


def test_an_index_that_is_none_is_named(folder):
    (folder / "model.safetensors").unlink()
    for index in ([], {"weight_map": []}, {"weight_map": {"a": 1}}, {}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert "model.safetensors.index.json" in refusal(folder), index


def test_a_bundled_model_needs_no_process_for_its_template(monkeypatch):
    monkeypatch.setattr(renderer_module.renderer, "render", None)
    assert "hi" in HFTokenizer.load(bundled_folder("tiny")).render_chat(TURN)


def test_a_process_that_dies_is_told_from_one_that_is_late():
    child = Child("gencli.templates.template_worker")
    assert child.ask(None, 60).error == ""
    child.close()
    assert not child.is_alive


def test_a_card_of_a_configuration_with_wrong_values_is_an_error_of_the_model(folder):
    whole = (folder / "config.json").read_text()
    for values in ({"layer_types": [[]]}, {"architectures": 3}, {"hidden_size": "x", "layer_types": 1}):
        (folder / "config.json").write_text(whole)
        change(folder / "config.json", **values)
        with case(values), pytest.raises(ModelError, match=r"config\.json"):
            read_card(folder)


def test_a_damaged_head_of_a_weight_file_is_named(folder):
    for head in ('{"a": 1}', '{"a": {"dtype": "F32", "shape": "x"}}', "[" * 100_000, "[]"):
        (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head.encode())
        with case(head[:40]):
            with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
                read_card(folder)
            assert "damaged" in refusal(folder)


def test_what_a_tokenizer_configuration_declares_is_taken_only_where_it_is_of_its_kind(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    for tokens in ([], {"1": "x"}, {"1": None}):
        change(folder / "tokenizer_config.json", added_tokens_decoder=tokens, chat_template=["x", 1])
        assert declared_template(str(folder))[0] is None, tokens


F32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(path: Path, head: dict[str, Any], size: int = 48) -> Path:
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(size)))
    return path


def read(path: Path, name: str, dtype: torch.dtype) -> tuple[torch.Tensor, list[int]]:
    counted: list[int] = []
    with open_tensors(read_table([path])) as files:
        target = torch.empty(files.tensors[name].shape, dtype=dtype)
        files.read_into(name, target, counted.append)
    return target, counted


def test_tensors_are_read_and_converted(tmp_path: Path) -> None:
    for stored, wanted in product(
        [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8],
        [torch.float32, torch.bfloat16],
    ):
        with case(stored, wanted):
            given = torch.randn(70, 11).mul(50).to(stored)
            save_file({"a": torch.ones(3), "b": given, "none": torch.empty(0, 4)}, tmp_path / "x.safetensors")
            found, counted = read(tmp_path / "x.safetensors", "b", wanted)
            assert torch.equal(found, given.to(wanted))
            assert counted == [given.nbytes]
            assert read(tmp_path / "x.safetensors", "none", wanted)[0].shape == (0, 4)


def test_large_tensors_are_read_in_pieces_by_several_threads(tmp_path: Path) -> None:
    given = torch.arange(5_000_001, dtype=torch.int32)
    save_file({"a": given}, tmp_path / "x.safetensors")
    found, counted = read(tmp_path / "x.safetensors", "a", torch.int32)
    assert torch.equal(found, given)
    assert sum(counted) == given.nbytes
    assert len(counted) > 1


def test_an_unknown_number_format_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {"a": {**F32, "dtype": "F31"}})
    with pytest.raises(ModelError, match="a has the number format 'F31', which is unknown"):
        read(path, "a", torch.float32)


def test_a_file_that_becomes_shorter_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {"a": F32})
    with open_tensors(read_table([path])) as files:
        path.write_bytes(b"")
        with pytest.raises(ModelError, match="ends within a tensor"):
            files.read_into("a", torch.empty(2, 3), lambda count: None)
