"""Loading: every fault has one message, and what loads is what was stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.device import pick_device, pick_dtype
from gencli.models.hf_runner import HFRunner
from gencli.runtime.machine import examine
from tests.models.cases import case
from tests.models.tiny_models import base, build

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as the library saves it."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    build("llama").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(saved, tmp_path / "copy")


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_saved_model_gives_the_same_logits(saved: Path) -> None:
    feed = StepPlan((Feed(0, 0, (5, 6, 7), 3),))
    loaded = HFRunner.load(saved, device="cpu").forward(feed)
    assert torch.equal(loaded, HFRunner(build("llama")).forward(feed))


@pytest.mark.skipif(not hasattr(hf, "HrmTextConfig"), reason="this transformers has no hrm_text")
def test_a_model_that_runs_its_layers_several_times_has_the_weights_of_each_once(tmp_path: Path) -> None:
    """Its config.json counts the layers of all times, which a cache holds."""
    config = hf.HrmTextConfig(**base(head_dim=8), H_cycles=1, L_cycles=2)
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 6
    assert HFRunner.load(tmp_path).spec.context == 1024


def test_the_spec_is_read_from_the_model(folder: Path) -> None:
    generation = {"eos_token_id": [3, 9]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    spec = HFRunner.load(folder, device="cpu").spec
    assert (spec.vocab_size, spec.context, spec.eos_ids) == (120, 1024, (3, 9))
    assert (spec.device, spec.dtype, spec.dtype_reason) == (
        CPU,
        torch.float32,
        "float32: the checkpoint is F32",
    )
    assert (spec.can_rollback, spec.notices) == (True, ())
    assert HFRunner(build("mamba")).spec.context > 10**9  # no configuration names it


def damage(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def pickle_only(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def absent_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "config cut off": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json is not valid JSON",
    ),
    "config a list": (lambda folder: (folder / "config.json").write_text("[]"), "should hold a JSON object"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    "damaged weights": (damage, "model.safetensors is damaged"),
    "pickle only": (pickle_only, "pickle files only"),
    "absent shard": (absent_shard, "lacks 2 of 2 weight files, such as model-00001"),
    "a weight absent": (
        lambda folder: edit_weights(folder, lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight")),
        r"lacks 1 of the model's weights, such as model.layers.1.mlp.up_proj.weight",
    ),
    "a weight of another shape": (
        lambda folder: edit_weights(
            folder, lambda weights: weights.update({"lm_head.weight": torch.zeros(9, 32)})
        ),
        "config.json asks for lm_head.weight",
    ),
    "unknown type": (lambda folder: edit_config(folder, model_type="novel9"), "knows no model type 'novel9'"),
    "no type": (lambda folder: edit_config(folder, model_type=None), "knows no model type None"),
    "no generator": (
        lambda folder: edit_config(folder, model_type="clip"),
        "type clip does not continue text",
    ),
    "an encoder too": (
        lambda folder: edit_config(folder, model_type="bart"),
        "type bart does not continue text",
    ),
    "own code": (
        lambda folder: edit_config(
            folder, model_type="novel9", auto_map={"AutoModelForCausalLM": "code.Novel"}
        ),
        "brings its own Python code",
    ),
    "impossible config": (
        lambda folder: edit_config(folder, num_attention_heads=5),
        "config.json describes no model: ",
    ),
}


def test_a_fault_in_the_folder_is_named(saved: Path, tmp_path: Path) -> None:
    for fault, (spoil, message) in FAULTS.items():
        folder = shutil.copytree(saved, tmp_path / fault)
        spoil(folder)
        with case(fault), pytest.raises(ModelError, match=message) as caught:
            HFRunner.load(folder, device="cpu")
        assert "\n" not in caught.value.message, fault


def test_what_is_no_folder_and_not_cached_is_named(saved: Path) -> None:
    for name in ("./nowhere", "/nowhere/at/all", "~/nowhere-at-all"):
        with pytest.raises(ModelError, match="There is no folder"):
            HFRunner.load(name)
    for name in ("nobody/nothing-at-all", "not a name!"):  # nothing is downloaded
        with pytest.raises(ModelError, match="neither a folder nor a model on this machine") as caught:
            HFRunner.load(name)
        assert ("models pull" in caught.value.hint) == ("/" in name)
    with pytest.raises(ModelError, match="is a file"):
        HFRunner.load(saved / "model.safetensors")


def test_a_dtype_asked_for_is_taken_and_an_unknown_one_refused(saved: Path) -> None:
    for dtype in ("float32", "bfloat16", "float16"):
        runner = HFRunner.load(saved, dtype=dtype, device="cpu")
        logits = runner.forward(StepPlan((Feed(0, 0, (5, 6)),)))
        assert (logits.dtype, runner.spec.dtype) == (torch.float32, getattr(torch, dtype))
        assert runner.spec.dtype_reason == f"{dtype}: as asked"
    for dtype in ("int8", "fp16", ""):
        with pytest.raises(UsageError, match="No dtype is called") as caught:
            HFRunner.load(saved, dtype=dtype)
        assert "bfloat16" in caught.value.hint


def test_half_precision_is_used_where_the_device_computes_it(folder: Path) -> None:
    names = ("amx_bf16", "avx512_bf16", "bf16")
    has_bf16 = any(torch.cpu.get_capabilities().get(name) for name in names)
    for stored, name in ((torch.bfloat16, "BF16"), (torch.float16, "F16")):
        build("llama").to(stored).save_pretrained(folder)
        spec = HFRunner.load(folder, device="cpu").spec
        assert spec.dtype == (torch.bfloat16 if has_bf16 else torch.float32), name
        assert "this CPU" in spec.dtype_reason
        assert pick_dtype("auto", device=torch.device("cuda:0"), stored=name)[0] == stored


def test_a_device_that_is_unknown_or_not_here_is_refused() -> None:
    for name in ("gpu", "cuda:x", "cuda:-1", ""):
        with case(name), pytest.raises(UsageError, match="No device is called"):
            pick_device(name)
    with pytest.raises(ModelError, match="There is no device cuda:99 here") as caught:
        pick_device("cuda:99")
    assert "cpu" in caught.value.hint


def test_the_bytes_of_weights_are_told_while_they_load(saved: Path) -> None:
    from transformers.utils import logging

    told: list[tuple[int, int]] = []
    HFRunner.load(saved, device="cpu", on_bytes=lambda done, total: told.append((done, total)))
    weights = load_file(saved / "model.safetensors").values()
    total = sum(weight.nbytes for weight in weights)
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)
    assert len(told) == len(weights) + 1
    assert logging.set_tqdm_hook(None) is None  # the library is as before


def test_weights_that_are_made_of_others_share_the_bytes_left() -> None:
    from gencli.models.files.model_files import _counted

    told: list[tuple[int, int]] = []
    stored = {"a": 10, "b.0": 4, "b.1": 4, "c": 2}
    weights = {"a": 1, "b": 2, "c": 3}.items()
    assert list(_counted(weights, stored, lambda done, total: told.append((done, total)))) == list(weights)
    assert told == [(0, 20), (10, 20), (18, 20), (20, 20)]


def test_it_is_said_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for versions, reason in [
        ({"cuda": None, "hip": None}, "is built for the CPU only"),
        ({"cuda": "12.8", "hip": None}, "is built for CUDA 12.8, but finds no GPU or no driver for it"),
        ({"cuda": None, "hip": "6.4"}, "is built for ROCm 6.4, but finds no GPU or no driver for it"),
    ]:
        with case(versions, reason):
            for name, version in versions.items():
                monkeypatch.setattr(torch.version, name, version)
            monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
            monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
            monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
            with pytest.raises(ModelError, match=f"There is no device cuda:1 here: PyTorch .* {reason}"):
                pick_device("cuda:1")
            found = {one.name: one for one in examine() if one.area == "device"}
            assert reason in found["gpu"].advice
