"""Models on the command line: folders, GGUF files, quantized copies, GPUs, what fits."""

import json
import re
import shutil
import warnings
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from gencli.errors import ModelError
from gencli.models import device
from gencli.models.decoder.products.dense_products import can_pack
from gencli.models.files.local_models import bundled_folder, hub_models
from gencli.models.files.model_card import kv_bytes, read_card
from gencli.models.model_memory import weight_bytes
from tests.helpers.gguf_files import add_byte_level, write_model
from tests.models.native import load_native
from tests.models.test_model_memory import parts
from tests.models.tiny_models import build, build_native
from tests.sham import Card, Fault, sham_device
from tests.text.test_gguf_tokenizer import byte_level


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
    tied = 2048 * 160 * can_pack()  # the projection, packed, is a second copy of the embeddings
    assert full == {"dtype": "float32", "weights": (2_234_400 + tied) * 4, "kv": 2 * 6 * 160 * 4 * 2 * 256}

    assert f"folder         {hub}\n" in gencli("models", "show", hub).out
    (hub / "model.safetensors").write_bytes(b"\xff" * 20)
    assert "is damaged" in gencli("models", "list", hub).out
    gencli("models", "show", hub).refused(code=5)


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
        gencli("models", *arguments).refused(said, code=code)


def test_weights_take_what_either_view_shows(gencli, hub):
    for name, folder in (("tiny", bundled_folder("tiny")), (hub, hub)):
        views = [
            gencli("models", "show", name, *more, "--format", "json").json for more in ((), ("--memory",))
        ]
        short, full = (
            {
                entry["dtype"]: entry["weights"]
                for entry in view["memory"]["of"]
                if entry.get("quantize", "none") == "none"
            }
            for view in views
        )
        for dtype in ("float32", "bfloat16"):
            decoder = load_native(folder, dtype=dtype)._decoder
            is_shared = decoder.spec.is_tied and dtype == "float32" and not can_pack()
            held = sum(parts(decoder)) - is_shared * decoder.embeddings.nbytes
            assert held == pytest.approx(short[dtype], rel=0.01), (name, dtype)
        assert short == full


def test_keys_and_values_take_what_either_view_shows(gencli):
    for tokens in (1, 256, 257, 300, 1024):
        words = ("models", "show", "tiny", "--batch", "2", "--context", str(tokens), "--format", "json")
        short, full = (gencli(*words, *more).json["memory"]["of"] for more in ((), ("--memory",)))
        assert short[0]["kv"] == full[0]["kv"], tokens


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
        "Nothing fits for 1 text of 1024 tokens: take fewer or shorter texts, or a smaller model.\n"
    )
    assert {line.split()[-3] for line in shown.splitlines()[3:-2]} == {"no"}


def test_a_config_that_is_no_object_is_named_and_a_running_state_not_guessed(tmp_path):
    build("mamba").save_pretrained(tmp_path)
    assert kv_bytes(read_card(tmp_path), batch=1, context=10, number_bytes=4) is None

    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="JSON object"):
        read_card(tmp_path)


TINY = files("gencli") / "assets" / "tiny"
SHORT = ("--seed", "7", "--max-tokens", "8", "Once upon a time")


def write_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


def ask_for_code(folder):
    (folder / "config.json").write_text(
        '{"model_type": "odd", "auto_map": {"AutoModelForCausalLM": "odd.Odd"}}'
    )


FAULTS = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    "corrupt weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"\1" * 99), "damaged"),
    "pickle only": (write_pickle, "pickle"),
    "remote code": (ask_for_code, "--trust-remote-code"),
    "no tokenizer": (lambda folder: [path.unlink() for path in folder.glob("token*")], "tokenizer"),
    "no folder": (shutil.rmtree, "There is no folder"),
}


def test_a_broken_folder_is_exit_5_and_one_message(gencli, tmp_path):
    for name, (spoil, said) in FAULTS.items():
        folder = tmp_path / name
        shutil.copytree(TINY, folder)
        spoil(folder)
        result = gencli("run", "--model", folder, "--raw", *SHORT)
        assert (result.code, result.out) == (5, ""), name
        assert said in result.err, name
        assert "Traceback" not in result.err, name
        assert result.err.startswith("Error: "), name


COMPANY = "In bfloat16 a text may depend on what is computed beside it"
UNSTEADY = ("--dtype", "bfloat16", "--invariant", "off")


def test_a_chat_says_so_where_it_has_drafts(gencli):
    for flags, is_said in [((), False), (("--draft", "ngram"), True)]:
        done = gencli("chat", *UNSTEADY, "--max-tokens", 2, *flags, stdin=b"Hello\n")
        assert (done.code, COMPANY in done.err) == (0, is_said), flags


TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    tokenizer = byte_level("llama-bpe")

    def add(writer, count):
        add_byte_level(writer, tokenizer, "llama-bpe", count=count, bos=0, eos=1)
        writer.add_chat_template(TEMPLATE)

    built = build_native("llama")
    built.resize_token_embeddings(700)
    write_model(path, built, "Q8_0", add)
    return path


def test_a_file_runs_alone_and_in_the_template_of_the_file(gencli, model):
    done = gencli(
        "run", "--model", model, "-t", "0", "--max-tokens", "4", "--dtype", "float32", "--format", "json",
        "Hello",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Q8_0 is widened to float32" in done.err
    record = done.json
    assert record["weights_sha256"] == sha256(model.read_bytes()).hexdigest()
    assert record["model_revision"] is None

    done = gencli("run", "--model", model, "--chat", "-t", "0", "--max-tokens", "3", "Hello")
    assert done.code == 0, done.err
    assert gencli("chat", "--model", model, "--max-tokens", "3", stdin=b"Hello\n/quit\n").code == 0


def test_a_batch_runs_and_resumes(gencli, model, tmp_path):
    (tmp_path / "in.txt").write_text("Hello\nworld\n")
    arguments = (
        "batch", tmp_path / "in.txt", "-o", tmp_path / "out.jsonl", "--model", model, "--max-tokens", "3",
    )  # fmt: skip
    assert gencli(*arguments).code == 0
    first = (tmp_path / "out.jsonl").read_bytes()
    assert gencli(*arguments, "--resume").code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert len(first.splitlines()) == 2


def test_a_file_is_shown_listed_split_into_tokens_and_may_have_an_alias(gencli, model):
    shown = gencli("models", "show", model)
    assert shown.code == 0, shown.err
    assert f"file           {model}\n" in shown.out
    assert "llama (GGUF) (llama)" in shown.out
    assert "native: the decoder knows the family" in shown.out
    record = gencli("models", "show", model, "--format", "json").json
    assert (record["dtype"], record["chat_template"], record["grammars"]) == ("Q8_0", True, "exact")
    assert str(model) in gencli("models", "list", model.parent).out
    assert gencli("tokenize", "--model", model, "Hello").code == 0

    assert gencli("models", "alias", "mine", model).code == 0
    assert gencli("models", "show", "mine").code == 0
    assert gencli("models", "alias", "mine", "--remove").code == 0


def test_only_the_decoder_runs_files_that_are_there(gencli, model, tmp_path):
    for arguments, code, reason in [
        (("--backend", "transformers"), 2, "--backend transformers does not run GGUF files"),
        (("--trust-remote-code",), 5, "code of the model may run"),
    ]:
        gencli("run", "--model", model, *arguments, "Hello").refused(reason, code=code)

    gencli("run", "--model", tmp_path / "none.gguf", "Hello").refused("There is no file", code=5)


def test_a_file_in_the_cache_of_the_hub_has_a_name(gencli, model, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    place, commit = tmp_path / "models--org--name", "a" * 40
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    (place / "blobs").mkdir()
    (place / "snapshots" / commit).mkdir(parents=True)
    digest = sha256(model.read_bytes()).hexdigest()
    (place / "blobs" / digest).write_bytes(model.read_bytes())
    (place / "snapshots" / commit / "q.gguf").symlink_to(f"../../blobs/{digest}")
    done = gencli("run", "--model", "org/name/q.gguf", "--max-tokens", "2", "--format", "json", "Hello")
    assert done.code == 0, done.err
    assert (done.json["model_revision"], done.json["weights_sha256"]) == (commit, digest)
    assert "gencli models pull org/name:p.gguf" in gencli("run", "--model", "org/name/p.gguf", "Hello").err


PROMPTS = ("Once upon a time", "One winter, a fox", "Question: Is Brindle a town?\nAnswer:")


def test_what_does_not_go_is_refused_by_name(gencli):
    for words, said in [
        (("run", "--quantize", "int8", "--backend", "transformers", "Hi"), "--backend is transformers"),
        (("run", "--quantize", "int8", "--dtype", "bfloat16", "Hi"), "--dtype is bfloat16"),
        (("run", "--quantize", "int4", "--kernel", "plain", "Hi"), "--kernel is plain"),
        (("run", "--quantize", "int8", "-m", "fake", "Hi"), "knows only none"),
        (("quantize", "tiny"), "takes a model and a new folder"),
        (("quantize", "fake", "out"), "has no files"),
        (("quantize", "tiny", "no/such/out"), "There is no folder no/such"),
    ]:
        gencli(*words).refused(said, code=(2, 5))


ON_GPU = ("--device", "cuda", "--max-tokens", "30", "--seed", "3")
FAULT = "CUDA error: an illegal memory access was encountered"


def failing(after, text=FAULT, at="gencli/engine/engine.py:step"):
    return Fault(lambda: torch.AcceleratorError(f"{text}\nCUDA kernel errors ..."), at, after, lost=True)


def check(result, text=FAULT):
    assert result.code == 6
    assert result.err.count("Error: ") == 1
    assert f"{text}.\nHint: " in result.err
    assert "Traceback" not in result.err


def test_a_gpu_that_cannot_be_used_is_said_while_the_model_is_loaded(gencli):
    for text, message in [
        ("CUDA error: no kernel image is available for execution on the device", "has no code for this GPU"),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver of the GPU is"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "Another process has the GPU"),
    ]:
        with sham_device() as seen:
            seen.faults.append(failing(0, text, "gencli/models"))
            failed = gencli("run", *ON_GPU, "Once")
        check(failed, text)
        assert message in failed.err, text


def test_a_model_larger_than_the_card_is_refused(gencli):
    with sham_device(Card(memory=2**20)) as seen:
        refused = gencli("run", *ON_GPU, "Once")
        assert not seen.launches
    assert refused.code == 5
    assert "cuda:0 has 1.0 MiB free" in refused.err
    assert "needs" in refused.err

    with sham_device(Card(memory=2**21)):
        refused = gencli("run", *ON_GPU, "--memory-check", "off", "Once")
    assert refused.code == 5
    assert "The model does not fit into the memory of cuda:0." in refused.err


def test_a_gpu_that_is_hidden_is_said_to_be(gencli, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    gencli("run", *ON_GPU, "Once").refused("CUDA_VISIBLE_DEVICES is empty", code=5)


def test_a_driver_that_is_too_old_is_said_to_be(gencli, monkeypatch):
    def told():
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old.", stacklevel=1)
        return False

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", told)
    monkeypatch.setattr(device, "_cuda_warning", device._cuda_warning.__wrapped__)
    gencli("run", *ON_GPU, "Once").refused("driver on your system is too old", code=5)
