"""Compat profiles: below the user's values, in the order of their system; hf as transformers has it."""

import pytest
import torch
from transformers import GenerationConfig

from gencli.config.job import make_job, notices
from gencli.config.layers import gather
from gencli.config.run_options import READS_MODEL
from gencli.config.settings import _LACKING
from processors.registry import builtin_registry
from tests.helpers.profiles import PROFILES
from tests.models.tiny_models import build


def settings_of(name, **given):
    return gather({"compat": name, **given}, {})


def values_of(settings):
    """The main values of the chain's stages that are on, in order."""
    active = make_job(settings).assembly.chain.active()
    return {name: getattr(params, params.main()) for name, params in active}


# What is on when nothing is set, in order: the defaults of each system.
ON = {
    "llama-cpp": {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "llama-cpp-mirostat": {"temperature": 0.8, "mirostat": 2},
    "hf": {"top_k": 50},
    "vllm": {},
    "vllm-v2": {},
    "sglang": {},
    "tgw": {},
    "tgw-hijack": {},
    "koboldcpp": {"top_k": 100, "top_p": 0.9, "temperature": 0.7},
    "koboldcpp-mirostat": {"temperature": 0.7, "mirostat": 2},
    "exl2": {"repetition": 1.025, "temperature": 0.8, "top_k": 50, "top_p": 0.8},
    "exl3": {"temperature": 0.8, "min_p": 0.08},
    "mlx": {"temperature": 0.0},
    "aphrodite": {},
}


def test_stages_that_a_system_lacks_run_with_its_profile_too():
    for name in [name for name in PROFILES if not name.endswith("mirostat")]:
        chain = make_job(settings_of(name, p_less=2, frequency_penalty=0.5)).assembly.chain.active()
        order = [stage for stage, _ in chain]
        assert {"p_less", "frequency"} <= set(order), name
        assert order.index("frequency") < order.index("p_less"), name

    for name in PROFILES:
        if name in ("vllm", "vllm-v2", "sglang"):
            job = make_job(settings_of(name, repetition_penalty=1.1, top_k=3))
            assert [text for text in notices(job, ()) if "runs after" in text] == []


def test_the_users_values_and_order_win_over_the_profile():
    settings = settings_of("vllm", top_k=7, temperature=0.5)
    chain = make_job(settings).assembly.chain
    assert (chain.get("top_k").k, chain.get("top_k").ties) == (7, "keep")
    assert [name for name, _ in chain][:3] == ["repetition", "frequency", "presence"]
    assert settings.origin("max_tokens") == "compat"

    settings = settings_of("sglang", temperature=0.5, temperature_last=True, top_p=0.9, top_k=5, min_p=0.1)
    assert list(values_of(settings)) == ["top_p", "top_k", "min_p", "temperature"]

    settings = settings_of("sglang", chain="min_p,top_k,top_p,temperature,penalties", top_k=3, top_p=0.5)
    assert list(values_of(settings)) == ["top_k", "top_p"]


def test_presets_may_name_profiles_and_have_notes(here, gencli):
    here("mine.yaml", "compat: vllm\ntop_k: 5\n")
    result = gencli("config", "export", "--preset", "./mine.yaml")
    assert result.out == 'compat: "vllm"\nstages:\n  top_k:\n    k: 5\n'
    assert gather({"preset": ["./mine.yaml"]}, {})["max_tokens"] == 16

    for name in ["hf", "vllm", "llama-cpp"]:
        assert values_of(gather({"preset": [f"{name}-default"]}, {})) == ON[name], name

    here("mine.yaml", "notes: [One., Two.]\nn: 1\n")
    assert (
        "Notice: Preset mine: One.\nNotice: Preset mine: Two.\n"
        in gencli("config", "show", "--preset", "./mine.yaml").err
    )
    here("wrong.yaml", "notes: [1]\n")
    assert "notes is 1, but has to be a text" in gencli("config", "lint", "./wrong.yaml").err


def test_a_models_own_values_are_above_the_profile_of_a_system_that_reads_them(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    (tmp_path / "config.json").write_text("{}")
    settings = settings_of("vllm", model=str(tmp_path))
    assert make_job(settings).assembly.chain.get("top_k").k == 20
    assert make_job(settings).assembly.chain.get("top_k").ties == "keep"
    below = settings_of("mlx", model=str(tmp_path))
    assert make_job(below).assembly.chain.get("temperature").temperature == 0
    assert "mlx" not in READS_MODEL


DEFAULTS = GenerationConfig._get_default_generation_params()

# A value of transformers, and where it is here.
NAMES = {
    "temperature": ("temperature", "temperature"),
    "repetition_penalty": ("repetition", "penalty"),
    "top_k": ("top_k", "k"),
    "top_p": ("top_p", "p"),
    "min_p": ("min_p", "p"),
    "top_h": ("top_h", "h"),
    "typical_p": ("typical", "p"),
    "epsilon_cutoff": ("epsilon", "cutoff"),
    "eta_cutoff": ("eta", "cutoff"),
    "no_repeat_ngram_size": ("no_repeat_ngram", "n"),
}

CHAINS = {
    "defaults": {},
    "temperature": {"temperature": 0.6, "top_k": 0},
    "repetition": {"repetition_penalty": 1.3, "top_k": 0},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.813, "top_k": 0},
    "min_p": {"min_p": 0.06, "top_k": 0},
    "top_h": {"top_h": 0.5137, "top_k": 0},
    "typical": {"typical_p": 0.7, "top_k": 0},
    "epsilon": {"epsilon_cutoff": 0.01, "top_k": 0},
    "eta": {"eta_cutoff": 0.02, "top_k": 0},
    "no_repeat_ngram": {"no_repeat_ngram_size": 2, "top_k": 0},
    "usual": {"temperature": 0.7, "repetition_penalty": 1.2, "top_k": 30, "top_p": 0.913, "min_p": 0.02},
    "all": {"temperature": 1.3, "repetition_penalty": 1.1, "top_h": 0.8137, "top_k": 40, "top_p": 0.953,
            "min_p": 0.01, "typical_p": 0.9, "epsilon_cutoff": 0.003, "eta_cutoff": 0.004},
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return build("llama")


@pytest.fixture(scope="module")
def profile():
    return gather({"compat": "hf"}, {})


def test_values_and_length_are_the_defaults_of_transformers(profile, model):
    chain = make_job(profile).assembly.chain
    lacking = {"repetition_penalty": 1.0, "min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0,
               "eta_cutoff": 0.0, "no_repeat_ngram_size": 0}  # fmt: skip
    for name, (stage, field) in NAMES.items():
        if DEFAULTS.get(name) is not None or name in lacking:
            assert getattr(chain.get(stage), field) == (DEFAULTS.get(name) or lacking.get(name)), name
    assert profile["max_tokens"] == DEFAULTS["max_length"]

    assert {key: DEFAULTS[key] for key in _LACKING if DEFAULTS.get(key) not in (None, _LACKING[key])} == {}

    with pytest.warns(UserWarning, match="max_length"):
        out = model.generate(torch.tensor([[5, 6, 7]]), do_sample=True)
    assert out.shape[1] - 3 == profile["max_tokens"]


def test_the_order_is_that_of_the_processors(profile, model):
    values = {key: value for key, value in CHAINS["all"].items() if NAMES[key][0] in builtin_registry()}
    config, _ = model._prepare_generation_config(None, do_sample=True, max_new_tokens=20, **values)
    classes = [type(made).__name__ for made in model._get_logits_processor(config, input_ids_seq_length=8)]
    said = {"RepetitionPenalty": "repetition", "Temperature": "temperature", "TopH": "top_h", "TopK": "top_k",
            "TopP": "top_p", "MinP": "min_p", "Typical": "typical", "Epsilon": "epsilon",
            "Eta": "eta"}  # fmt: skip
    theirs = [said[name.removesuffix("Warper").removesuffix("Processor").removesuffix("Logits")]
              for name in classes]  # fmt: skip
    order = [name for name in profile["chain"] if name in theirs]
    assert order == theirs
