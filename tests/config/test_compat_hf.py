"""The profile hf beside the transformers that is installed: values, processors in their order, length."""

import pytest
import torch
from transformers import GenerationConfig

from gencli.config.job import make_job
from gencli.config.layers import gather
from gencli.config.settings import _LACKING
from processors.registry import builtin_registry
from tests.models.tiny_models import build

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
