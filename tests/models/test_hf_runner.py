"""What the Hugging Face runner promises beside the text.

Loading: every fault has one message, and what loads is what was stored. Lanes of a companion or draft
model: what they keep, and what they copy from each other. Architectures that no list names: what they do
differently is found when they are loaded.
"""

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

from gencli.core.events import Error
from gencli.core.request import Feed, Guidance, Limits, Request, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import ModelError, UsageError
from gencli.models.device import pick_device, pick_dtype
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_buffers import ContractError
from gencli.models.kv.shared_cache import SlotLanes
from gencli.models.model_runner import PrefixLanes
from gencli.models.other_runners import FakeRunner
from gencli.runtime.machine import examine
from gencli.text.tokenizer import ByteTokenizer
from tests.models.cases import case
from tests.models.fresh import FreshRunner
from tests.models.loops import Job, decode
from tests.models.tiny_models import CONFIGS, PROMPTS, VOCAB, base, build


@pytest.fixture(params=["llama", "mamba"])
def runner(request: pytest.FixtureRequest) -> HFRunner:
    return HFRunner(build(request.param), max_lanes=4)


def feed(runner: HFRunner, *feeds: Feed) -> torch.Tensor:
    return runner.forward(StepPlan(feeds))


def test_rows_come_in_feed_order(runner: HFRunner) -> None:
    long, short = tuple(range(40)), (5, 6, 7)
    together = feed(
        runner, Feed(2, 0, long, 2), Feed(0, 0, short, 3), Feed(1, 0, short, 0), Feed(3, 0, long, 1)
    )
    assert together.shape == (6, VOCAB)
    torch.testing.assert_close(together[1], together[5])
    runner.release(0)
    torch.testing.assert_close(feed(runner, Feed(0, 0, short, 3)), together[2:5])
    for lane in range(4):
        runner.release(lane)
    assert feed(runner, Feed(2, 0, short, 0), Feed(0, 0, long, 0)).shape == (0, VOCAB)  # nothing is wanted
    assert feed(runner, Feed(2, 3, (3,), 1)).shape == (1, VOCAB)


def test_logits_can_be_edited_in_place(runner: HFRunner) -> None:
    first = feed(runner, Feed(0, 0, (1, 2)))
    first[:, 3] = -torch.inf
    feed(runner, Feed(0, 2, (4,)))
    assert first[0, 3] == -torch.inf
    with torch.inference_mode():
        feed(runner, Feed(0, 3, (4,))).zero_()


def test_contract_and_context_are_enforced(runner: HFRunner) -> None:
    feed(runner, Feed(0, 0, (1, 2)))
    with pytest.raises(ContractError, match="holds 2 tokens, the feed starts at 1"):
        feed(runner, Feed(0, 1, (1,)))
    with pytest.raises(ModelError, match=f"Token id {VOCAB} is unknown"):
        feed(runner, Feed(0, 2, (VOCAB,)))
    if runner.spec.context < 10**6:
        with pytest.raises(ContractError, match="exceed the context"):
            feed(runner, Feed(1, 0, (1,) * (runner.spec.context + 1)))
    runner.truncate(0, 2)  # keeping all always works
    with pytest.raises(ContractError, match="cannot keep 3"):
        runner.truncate(0, 3)
    assert feed(runner, Feed(0, 2, (4,))).shape == (1, VOCAB)


def test_a_fork_replaces_what_the_target_held_and_empty_lanes_can_be_forked(runner: HFRunner) -> None:
    feed(runner, Feed(0, 0, (1, 2, 3)), Feed(1, 0, (9,) * 20))
    runner.fork(0, 1)
    both = feed(runner, Feed(0, 3, (4,)), Feed(1, 3, (4,)))
    torch.testing.assert_close(both[0], both[1])
    runner.fork(2, 3)
    runner.release(3)
    assert feed(runner, Feed(3, 0, (1,))).isfinite().all()


@pytest.mark.parametrize("way", ["released", "forked over", "rejected draft"])
def test_infinities_do_not_outlive_their_request(way: str) -> None:
    model = build("llama")
    runner = HFRunner(model, max_lanes=2)
    clean = feed(runner, Feed(0, 0, (1, 2, 3)), Feed(1, 0, (5, 6, 7, 8)))
    runner.release(0)
    runner.release(1)
    weights = model.model.embed_tokens.weight.data
    saved = weights[9].clone()
    weights[9] = torch.inf
    assert not feed(runner, Feed(0, 0, (9,) * 30)).isfinite().any()
    weights[9] = saved
    feed(runner, Feed(1, 0, (1,)))
    start, rest = 0, (1, 2, 3)
    if way == "rejected draft":
        runner.truncate(0, 0)
    if way == "forked over":
        runner.fork(1, 0)
        start, rest = 1, (2, 3)
    else:
        runner.release(0)
    runner.release(1)
    again = feed(runner, Feed(0, start, rest), Feed(1, 0, (5, 6, 7, 8)))
    torch.testing.assert_close(again, clean)


def test_lanes_of_a_model_that_counts_places_itself_are_scaled_by_their_own() -> None:
    config = hf.Llama4TextConfig(**base(no_rope_layers=[1, 0], floor_scale=8, attn_scale=0.5))
    torch.manual_seed(0)
    model = hf.Llama4ForCausalLM(config).eval()
    prompts = [[7] * 3, list(range(50))]
    alone = [decode(HFRunner(model), [Job(0, list(prompt))], count=12)[0] for prompt in prompts]
    jobs = [Job(lane, list(prompt)) for lane, prompt in enumerate(prompts)]
    assert decode(HFRunner(model), jobs, count=12) == alone


def test_several_logits_of_a_prompt_are_right_where_layers_share_keys_and_values() -> None:
    """Gemma 4 narrows such layers to the wanted places, and takes care only of attention named "sdpa"."""
    sizes = base(num_hidden_layers=2, head_dim=8, layer_types=["full_attention"] * 2)
    shared = {
        "num_kv_shared_layers": 1,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
    }
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.Gemma4TextConfig(**sizes, **shared, global_head_dim=8))
    prompt = tuple(range(20))
    found = feed(HFRunner(model), Feed(0, 0, prompt, 7))
    with torch.inference_mode():
        torch.testing.assert_close(found, model(input_ids=torch.tensor([prompt])).logits[0, -7:])


TINY = {"vocab_size": 9, "hidden_size": 32, "num_hidden_layers": 1}
TINY |= {"intermediate_size": 64, "num_attention_heads": 2}


def test_models_that_cannot_be_continued_are_refused() -> None:
    for config, message in [
        (hf.BertConfig(**TINY), "not a decoder"),
        (hf.RecurrentGemmaConfig(**TINY, lru_width=32), "keeps its state inside"),
    ]:
        with pytest.raises(ModelError, match=message):
            HFRunner(hf.AutoModelForCausalLM.from_config(config))


def rows_held(runner: HFRunner) -> int:
    """Rows of the largest buffer of keys or values."""
    return max(buffer.data.shape[0] for buffer in runner._lanes._cache.store.buffers)


def test_buffers_have_rows_for_lanes_that_hold_something_whatever_their_numbers() -> None:
    runner = HFRunner(build("llama"), max_lanes=64)
    expected = feed(runner, Feed(0, 0, (1, 2, 3)), Feed(63, 0, (4, 5)))
    assert rows_held(runner) == 2
    runner.release(0)
    torch.testing.assert_close(feed(runner, Feed(32, 0, (1, 2, 3)), Feed(63, 2, (6,)))[0], expected[0])
    runner.fork(63, 7)
    after = feed(runner, Feed(63, 3, (7,)), Feed(7, 3, (7,)))
    torch.testing.assert_close(after[0], after[1])
    assert 3 <= rows_held(runner) <= 4  # they double
    alone = HFRunner(build("llama"), max_lanes=1)
    torch.testing.assert_close(feed(alone, Feed(0, 0, (4, 5, 6, 7)))[0], after[0])


def test_companions_take_rows_as_guided_samples_come() -> None:
    runner = HFRunner(build("llama"), max_lanes=64)
    on = Engine(runner, ByteTokenizer(), max_batch=32)
    for number, rows in ((1, 2), (3, 8)):  # what ends leaves a warm lane
        for place in range(number):
            guidance = Guidance(1.5, negative=(9, 8, 7))
            on.submit(Request(f"{place}", (1, 2, 3 + place), guidance=guidance, limits=Limits(4)))
        assert not [event for event in on.run() if isinstance(event, Error)]
        assert rows_held(runner) == rows


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


TEXT = [*range(40)]


def cache_with(runner, **texts):
    """A cache whose lanes 0, 1, ... have read the texts."""
    cache = PrefixLanes(runner)
    for number, text in enumerate(texts.values()):
        lane = cache[number]
        runner.forward(StepPlan((Feed(number, 0, tuple(text), num_logits=0),)))
        lane.extend(text)
    return cache


def test_the_first_use_of_a_lane_empties_it():
    runner = FakeRunner()
    runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
    assert len(PrefixLanes(runner)[0]) == runner.length(0) == 0


def test_a_lane_keeps_its_own_prefix_and_copies_a_longer_one():
    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT)
    cache.reuse(cache[0], [*TEXT[:30], 99])
    assert (cache[0].tokens, runner.length(0)) == (TEXT[:30], 30)

    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT[:5], other=TEXT)
    cache.reuse(cache[0], [*TEXT[:30], 99])
    assert cache[0].tokens == TEXT[:30]
    assert (runner.length(0), runner.length(1)) == (30, 40)

    cache = cache_with(FakeRunner(), own=TEXT[:2], other=TEXT)
    cache.reuse(cache[0], [*TEXT[:9], *[99] * 20])
    assert len(cache[0]) == 2  # a short prefix is not worth a copy


def test_lanes_of_another_salt_share_nothing():
    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT, other=TEXT)
    cache.reuse(cache[0], TEXT[:30], "a")
    assert len(cache[0]) == runner.length(0) == 0
    cache.reuse(cache[1], TEXT[:30])
    assert cache[1].tokens == TEXT[:30]


class RemembersCalls(hf.LlamaForCausalLM):
    """Is another model at every call."""

    calls = 0

    def forward(self, *args: Any, **rest: Any) -> Any:
        self.calls += 1
        out = super().forward(*args, **rest)
        out.logits = out.logits.roll(self.calls, -1)
        return out


class DrawsNumbers(hf.LlamaForCausalLM):
    def forward(self, *args: Any, **rest: Any) -> Any:
        torch.rand(3)
        return super().forward(*args, **rest)


def made(kind: type[Any]) -> Any:
    torch.manual_seed(0)
    return kind(CONFIGS["llama"]()).eval()


def unknown(model: Any) -> Any:
    """The model as one whose code does not come with the library, so that it is tried."""
    model.__class__ = type("Unknown", (type(model),), {"__module__": __name__})
    return model


def num_passes(model: Any) -> list[int]:
    """The tokens of each pass while its lanes are chosen."""
    fed: list[int] = []
    embed = model.get_input_embeddings()
    hook = embed.register_forward_hook(lambda _, args, out: fed.append(args[0].numel()))
    lanes: Any = HFRunner(model)._lanes
    hook.remove()
    assert not [buffer for buffer in lanes._cache.store.buffers if buffer.data.numel()]
    return fed


def test_a_model_that_cannot_be_run_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="llama models cannot be run: its logits are off by"):
        HFRunner(made(RemembersCalls))
    config = hf.OpenAIGPTConfig(vocab_size=9, n_embd=32, n_layer=1, n_head=2, n_positions=16)
    with pytest.raises(ModelError, match="openai-gpt models cannot be run: .* returns no cache"):
        HFRunner(hf.AutoModelForCausalLM.from_config(config))


def test_the_check_is_four_small_passes_and_none_for_the_librarys_architectures() -> None:
    fed = num_passes(unknown(build("llama")))
    assert len(fed) == 4
    assert sum(fed) < 40
    assert num_passes(build("llama")) == []


def test_random_numbers_are_what_they_were() -> None:
    model = made(DrawsNumbers)
    before = torch.get_rng_state()
    HFRunner(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_rounding_and_numbers_that_are_not_finite_are_no_fault_of_the_lanes() -> None:
    for kind, dtype in (("llama", torch.bfloat16), ("gemma2", torch.float16), ("qwen3_moe", torch.bfloat16)):
        assert isinstance(HFRunner(unknown(build(kind)).to(dtype))._lanes, SlotLanes), (kind, dtype)
    model = unknown(build("llama"))
    model.lm_head.weight.data[5] = torch.nan
    assert isinstance(HFRunner(model)._lanes, SlotLanes)


def test_dynamic_rope_lanes_share_a_pass_up_to_the_end_of_the_context() -> None:
    """Their factors change behind the context only."""
    config = CONFIGS["llama"]()
    config.max_position_embeddings = 64
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(config).eval()
    runner, fresh, prompts = HFRunner(model), FreshRunner(model), [PROMPTS[2], [*PROMPTS[3], *PROMPTS[1]]]
    assert not runner.spec.notices
    expected = [decode(fresh, [Job(0, list(prompt))], count=17)[0] for prompt in prompts]
    assert (
        decode(runner, [Job(lane, list(prompt)) for lane, prompt in enumerate(prompts)], count=17) == expected
    )
