"""`gencli models`: what the files say, and that no weights are read."""

import json
import re

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.files.local_models import bundled_folder, hub_models
from gencli.models.files.model_card import kv_bytes, read_card
from gencli.models.model_memory import weight_bytes
from tests.models.tiny_models import build


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub cache with one model of random weights and one without a configuration."""
    cache = tmp_path / "hub"
    place = cache / "models--someone--small"
    folder = place / "snapshots" / "abc"
    build("llama").save_pretrained(folder)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    (cache / "models--someone--broken" / "snapshots" / "x").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return folder


def test_the_list_has_bundled_models_and_the_hub_s(gencli, hub):
    result = gencli("models", "list")
    rows = [line.split() for line in result.out.splitlines()]
    assert ["someone/small", "hub"] in [row[:2] for row in rows]
    assert [
        "tiny", "bundled", "8.5", "MiB", "F32", "LlamaForCausalLM", "1024", "yes", "shared", "yes",
    ] in rows  # fmt: skip
    assert dict(hub_models()) == {"someone/small": hub}

    names = [row["name"] for row in json.loads(gencli("models", "list", "--format", "json").out)]
    assert names == ["tiny", "tiny-draft", "someone/small", "someone/broken@x"]


def test_show_counts_weights_and_a_damaged_folder_is_listed(gencli, hub, tmp_path):
    record = gencli("models", "show", "tiny", "--batch", "2", "--context", "100", "--format", "json").json
    assert (record["parameters"], record["dtype"], record["chat_template"]) == (2_234_400, "F32", True)
    full = record["memory"]["of"][0]
    assert full == {"dtype": "float32", "weights": 2_234_400 * 4, "kv": 2 * 6 * 160 * 4 * 2 * 100}

    assert "someone" in gencli("models", "show", hub).out
    (hub / "model.safetensors").write_bytes(b"\xff" * 20)
    assert "is damaged" in gencli("models", "list", hub).out
    result = gencli("models", "show", hub)
    assert (result.code, result.out) == (5, "")


def test_what_is_wrong_is_said(gencli, hub):
    for arguments, code, said in [
        ([], 2, "needs one of: list, show, pull, rm, alias"),
        (["lits"], 2, "Did you mean 'list'?"),
        (["show"], 2, "takes one model"),
        (["show", "fake"], 2, "table"),
        (["show", "tiyn"], 5, "Did you mean 'tiny'?"),
        (["show", "tiny", "--context", "9999"], 2, "takes 1024"),
        (["list", "nowhere"], 5, "no folder"),
    ]:
        result = gencli("models", *arguments)
        assert (result.code, result.out) == (code, ""), arguments
        assert said in result.err, arguments


def test_the_memory_is_shown_in_parts(gencli):
    flags = ("--memory", "--batch", "2", "--context", "300")
    head, *lines = gencli("models", "show", "tiny", *flags).out.splitlines()
    assert head.startswith("tiny on the CPU, 2 texts of 300 tokens; ")
    parts = ["weights", "keys and values", "buffers of a step", "Python and PyTorch", "all"]
    assert re.split(r"  +", lines[0]) == ["", *parts]
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "float32", "float32, --kv-dtype bfloat16", "float32, --kv-dtype int8", "float32, --kv-dtype fp8",
        "bfloat16", "--quantize int8", "--quantize int4",
    ]  # fmt: skip
    memory = json.loads(gencli("models", "show", "tiny", *flags, "--format", "json").out)["memory"]
    assert [(one["dtype"], one["kv_dtype"], one["quantize"]) for one in memory["of"]] == [
        ("float32", "float32", "none"), ("float32", "bfloat16", "none"), ("float32", "int8", "none"),
        ("float32", "fp8", "none"), ("bfloat16", "bfloat16", "none"), ("float32", "float32", "int8"),
        ("float32", "float32", "int4"),
    ]  # fmt: skip
    exact, mixed, codes, byte, half, eight, four = memory["of"]
    assert exact["kv"] == 1920 * 4 * 512 * 2 == 2 * mixed["kv"] == 2 * half["kv"] == 4 * byte["kv"]
    assert codes["kv"] == byte["kv"] * (32 + 4) // 32  # the scale of a head
    card = read_card(bundled_folder("tiny"))  # a CPU that packs a format holds tied embeddings twice in it
    whole, halved = (weight_bytes(card, one, torch.device("cpu")) for one in (torch.float32, torch.bfloat16))
    assert exact["weights"] == mixed["weights"] == whole
    assert half["weights"] == halved
    assert half["weights"] > eight["weights"] > four["weights"]


def test_what_fits_a_card_is_shown_with_what_to_type(gencli):
    flags = ("--batch", "8", "--context", "1000")
    head, about, title, *rows, _, advice = gencli(
        "models", "show", "tiny", "--card", "24GB", *flags
    ).out.splitlines()
    assert head == "tiny on 24GB, of which programs find 23.6 GiB: 8 texts of 1000 tokens"
    assert "512.0 MiB, which is an assumption" in about
    assert title.split()[0] == "weights"
    assert len(rows) == 10
    assert advice == "Fits for 8 texts of 1000 tokens: gencli run --model tiny --device cuda"
    record = json.loads(gencli("models", "show", "tiny", "--card", "24GB", *flags, "--format", "json").out)
    of = record["memory"]["of"]
    assert [one["flags"] for one in of][1::4] == [
        "--dtype bfloat16",
        "--quantize int8 --kv-dtype int8",
        "--quantize int4 --kv-dtype fp8",
    ]
    exact, half, eight, fp8 = of[:4]
    assert exact["kv"] == 2 * half["kv"] == 4 * fp8["kv"] == 9 * exact["kv_of_one"]  # one fills up steps
    assert fp8["kv"] < eight["kv"] < half["kv"]

    shown = gencli("models", "show", "tiny", "--card", "0.5GB").out
    assert shown.endswith(
        "Nothing fits for 1 text of 1024 tokens: take fewer or shorter texts, or a smaller model."
    )
    assert {line.split()[-3] for line in shown.splitlines()[3:-2]} == {"no"}


def test_a_config_that_is_no_object_is_named_and_a_running_state_not_guessed(tmp_path):
    build("mamba").save_pretrained(tmp_path)
    assert kv_bytes(read_card(tmp_path), batch=1, context=10, number_bytes=4) is None

    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="JSON object"):
        read_card(tmp_path)
