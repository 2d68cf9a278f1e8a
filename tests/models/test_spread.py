"""A model over several devices: split over two processes it writes what it writes in one."""

import json
import shutil

import pytest
import torch

from gencli.cli.app import main
from gencli.errors import ModelError, UsageError
from gencli.models.backend import Spread, check_plan
from gencli.models.files.local_models import bundled_folder
from gencli.models.kv.lane_lengths import LaneLengths
from gencli.models.kv.model_calls import OwnCacheLanes
from gencli.models.kv.shared_cache import choose_lanes
from tests.models.cases import case
from tests.models.tiny_models import base


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of four heads with the bundled model's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    made, tiny = tmp_path_factory.mktemp("llama"), bundled_folder("tiny")
    size = json.loads((tiny / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**base(vocab_size=size))).save_pretrained(made)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, made)
    return made


def test_layers_placed_by_accelerate_write_the_same(folder, capfd):
    pytest.importorskip("accelerate")
    command = ["run", "--model", str(folder), "--seed", "3", "--max-tokens", "12", "-q", "The fox"]
    assert main(command) == 0
    plain = capfd.readouterr().out
    assert main([*command, "--device-map", "auto"]) == 0
    assert capfd.readouterr().out == plain


def test_lanes_of_a_model_on_several_devices_have_caches_of_their_own(folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    model.hf_device_map = {"model": 0, "lm_head": 1}
    lanes, notices, _ = choose_lanes(model, LaneLengths(max_lanes=2, context=16, num_ids=9))
    assert isinstance(lanes, OwnCacheLanes)
    assert "several devices" in notices[0]


def test_what_does_not_go_together_is_refused():
    for spread, device, message in [
        (Spread(tp=2), "auto", "`tp` = 2 needs 2 processes; there is 1"),
        (Spread("auto", 2), "auto", "`tp` and `device_map` both spread the model"),
        (Spread("auto"), "cuda:1", "`device` = cuda:1 names one device, and `device_map` takes several"),
        (Spread(tp=2), "cpu", "`device` = cpu names one device, and `tp` takes several"),
    ]:
        with case(spread, device, message), pytest.raises(UsageError, match=message):
            spread.check(device)


def test_one_process_says_how_to_start_several(capfd):
    assert main(["run", "--model", "fake", "--tp", "2", "a"]) == 2
    assert "torchrun --nproc-per-node 2 -m gencli" in capfd.readouterr().err


def test_without_accelerate_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("gencli.models.backend.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs accelerate") as caught:
        Spread("auto").check("auto")
    assert "gencli[multi-gpu]" in caught.value.hint


def test_an_architecture_that_cannot_be_split_is_refused():
    from transformers import GPT2Config, LlamaConfig

    with pytest.raises(ModelError, match="no plan for splitting gpt2"):
        check_plan(GPT2Config(), 2)
    with pytest.raises(ModelError, match=r"5 heads \(num_attention_heads\), which 2 processes cannot share"):
        check_plan(LlamaConfig(hidden_size=20, num_attention_heads=5, num_key_value_heads=5), 2)
    check_plan(LlamaConfig(num_attention_heads=4, num_key_value_heads=2), 2)
