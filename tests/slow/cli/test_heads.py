"""Trained draft heads on the command line: what drafts with them, shows and checks them, or refuses them."""

import json
import shutil

import pytest

from tests.models.tiny_models import long_rope
from tests.speculative.agreeing_heads import MTP, TAPS, TINY, agreeing_eagle3, make_model
from tests.speculative.head_runs import pair
from tests.speculative.odd_heads import REFUSED
from tests.speculative.tiny_heads import Shape, eagle1

KINDS = ("eagle1", "eagle3 narrow", "medusa", "eagle3 narrow gguf", "mtp qwen")
COMMON = ("--dtype", "float32", "--seed", "3", "--max-tokens", "20")


def model_of(kind):
    return ("--model", pair(kind).model, *COMMON)


def drafts_of(kind):
    return ("--draft", pair(kind).head, "--draft-tokens", "4")


@pytest.mark.parametrize("kind", KINDS)
def test_run_chat_sweep_and_fork_have_their_texts(gencli, tmp_path, kind):
    model, drafts = model_of(kind), drafts_of(kind)
    plain = gencli("run", *model, "-q", "Once").out
    drafted = gencli("run", *model, *drafts, "--format", "json", "Once").json
    assert (drafted["text"], drafted["speculation"]["drafter"]) == (plain.rstrip("\n"), pair(kind).head)
    assert sum(drafted["speculation"]["accepted"]) > 0
    preset = tmp_path / "preset.yaml"
    preset.write_text(f"draft: {pair(kind).head}\ndraft_tokens: 4\n")
    assert gencli("run", *model, "--preset", preset, "-q", "Once").out == plain
    said = b"Hello there\nWhat now?\n/undo\nAnd again?\n"
    assert gencli("chat", *model, *drafts, stdin=said).out == gencli("chat", *model, stdin=said).out
    grid = ("sweep", *model, "--vary", "temperature=0.4,0.9", "--format", "jsonl", "Once", "Twice")
    cells = [[cell["texts"] for cell in gencli(*grid, *more).lines] for more in ((), drafts)]
    assert cells[0] == cells[1]
    traces = [tmp_path / name for name in ("plain.jsonl", "drafted.jsonl")]
    for trace, more in zip(traces, ((), drafts), strict=True):
        gencli("run", *model, *more, "-q", "--trace", trace, "Once")
    assert len({gencli("fork", trace, "--at", "4", "-n", "2").out for trace in traces}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_logged_run_with_a_policy_that_drafts_decide_runs_again(gencli, kind):
    """Weights of heads are hashed whatever their files are."""
    first = gencli("run", *model_of(kind), *drafts_of(kind), "--verify", "rejection", "--log", "Once")
    assert first.code == 0
    number = gencli("log", "list").out.split()[0]
    record = gencli("log", "show", number, "--format", "json").json
    named = record["models"]
    assert ("draft" in named) == (kind not in MTP)
    assert all(len(model["sha256"]) == 64 for model in named.values())
    assert gencli("log", "rerun", number).out == first.out


@pytest.mark.parametrize("kind", KINDS)
def test_doctor_checks_a_head(gencli, kind):
    told = gencli(
        "doctor", "--dtype", "float32", "--format", "json", *model_of(kind)[:2], *drafts_of(kind)[:2]
    )
    assert told.code == 0
    first, *others = told.json
    assert (first["variant"], first["is_best"]) == ("as configured", True)
    assert len(first["agreement"]) == 4
    assert others
    assert not any(each["is_best"] for each in others)
    assert "agrees more often" not in told.err


def test_doctor_says_what_is_wrong_with_a_head(gencli, tmp_path):
    taps = tuple(tap - 1 for tap in TAPS)
    head = agreeing_eagle3(make_model(), taps=taps).write(tmp_path / "head")
    told = gencli("doctor", "--dtype", "float32", *model_of("eagle3")[:2], "--draft", head)
    right = f"reads states {', '.join(map(str, TAPS))}"
    assert f"The head agrees more often with the model if it {right}: see its settings." in told.err
    (best,) = [line for line in told.out.splitlines() if line.startswith("*")]
    assert right in best
    assert "9" in best.split()[-1]
    table = gencli(
        "doctor", "--dtype", "float32", "--format", "json", *model_of("eagle3")[:2], "--draft", head
    ).json
    assert [each["variant"] for each in table if each["is_best"]] == [right]


def test_what_is_no_head_is_not_checked(gencli):
    for name in ("ngram", "none", "early-exit", "tiny-draft"):
        gencli("doctor", "--draft", name).refused(f"--draft {name} is no trained draft head")
    gencli("doctor", "--draft", "nowhere").refused("nowhere is neither a folder nor a model", code=5)
    gencli("doctor", "--draft", "mtp").refused("has no layers for multi-token prediction")
    gencli("doctor", "--dtype", "float32").refused("--dtype is for a draft head")


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_head_is_shown_as_one_and_is_no_model(gencli, kind):
    head = pair(kind).head
    shown = gencli("models", "show", head)
    assert f"a draft head: --draft {head} drafts with it for its model" in shown.out
    record = gencli("models", "show", head, "--format", "json").json
    assert (record["is_head"], record["bytes"] > 10_000) == (True, True)
    refused = (f"{head} is a draft head, not a model", f"--draft {head}")
    gencli("run", "--model", head, "Once").refused(*refused, code=5)
    gencli("run", "--model", pair(kind).model, "--contrast", head, "Once").refused(*refused, code=5)


def test_a_model_whose_weights_are_pickles_is_no_head(gencli, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "model.safetensors").unlink()
    other = eagle1(Shape()).write(tmp_path / "head")
    import torch

    torch.save({"model.norm.weight": torch.ones(4)}, folder / "pytorch_model.bin")
    gencli("run", "--model", folder, "Once").refused("has its weights as pickle files only", code=5)
    gencli("run", "--model", other, "Once").refused("is a draft head, not a model", code=5)


def test_a_head_for_another_model_is_refused(gencli):
    for kind in ("eagle1", "eagle3", "eagle3 narrow", "medusa"):
        head = pair(kind).head
        told = ("states as wide as 64, but here it is 160", "Was the head trained for this model?")
        gencli("run", "--draft", head, "Once").refused(head, *told, code=5)


def test_where_no_head_can_draft_it_is_said(gencli, tmp_path):
    gencli("run", "--draft", "mtp", "Once").refused(
        "model.mtp_layers.0.input_proj, mtp.layers.0.eh_proj, mtp.fc or model.layers.6.eh_proj"
    )
    for name in ("mtp", pair("eagle1").head):
        gencli("run", "--model", "fake", "--draft", name, "Once").refused(
            "fake shows no hidden states of layers", code=5
        )
        told = f"--draft {name} does not go together with --tp or --device-map"
        gencli("run", "--device-map", "auto", "--draft", name, *model_of("mtp qwen")[:2], "Once").refused(
            told
        )
    for kind, make in REFUSED.items():
        folder = make(Shape(vocab=2048, hidden=160, layers=6)).write(tmp_path / kind.replace(" ", "_"))
        refused = gencli("run", "--draft", folder, "Once")
        assert refused.code == 5, kind
        assert str(folder) in refused.err, kind


def test_a_model_with_a_long_rope_takes_no_head(gencli, tmp_path):
    folder = tmp_path / "model"
    long_rope("llama").save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / file, folder / file)
    head = eagle1(Shape(vocab=120, hidden=32, layers=2)).write(tmp_path / "head")
    gencli("run", "--model", folder, "--draft", head, "Once").refused("shows no hidden states", code=5)


def test_beams_and_contrastive_search_take_no_head(gencli):
    model, drafts = model_of("eagle1"), drafts_of("eagle1")
    for search in (("--beams", "3"), ("--contrastive-alpha", "0.5", "--contrastive-k", "3")):
        with_head, with_ngram = (
            gencli("run", *model[:-4], "--max-tokens", "5", *search, *draft, "Once")
            for draft in (drafts[:2], ("--draft", "ngram"))
        )
        assert with_head.code == with_ngram.code, search
        assert with_head.out == with_ngram.out, search


def test_options_of_other_commands_are_named(gencli):
    for command in ("score", "compare"):
        gencli(command, "--draft", "mtp", "Once").refused("There is no option --draft")


def test_files_of_a_run_with_a_head_are_json(gencli, tmp_path):
    output = tmp_path / "run.json"
    gencli("run", *model_of("medusa"), *drafts_of("medusa"), "--output", output, "Once")
    speculation = json.loads(output.read_text())["speculation"]
    assert speculation["accepted"][0] <= speculation["proposed"][0]
