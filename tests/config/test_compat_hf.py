"""The profile hf beside the transformers that is installed: values, processors in their order, length."""

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList

from gencli.config.job import make_job
from gencli.config.layers import gather
from gencli.config.model_defaults import _LACKING
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import builtin_registry
from processors.rows import Rows
from tests.helpers.profiles import far_rows, random_rows
from tests.helpers.tiny_steps import far_steps, steps
from tests.models.tiny_models import VOCAB, build

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
# A value of transformers whose option has another name.
OPTIONS = {"typical_p": "typical", "epsilon_cutoff": "epsilon", "eta_cutoff": "eta",
           "no_repeat_ngram_size": "no_repeat_ngram"}  # fmt: skip
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
ROWS = 10_000


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


def hf_logits(model, ids, logits, values):
    """What transformers' own processors of a sampled generate() make of the logits."""
    config, _ = model._prepare_generation_config(None, do_sample=True, max_new_tokens=20, **values)
    made = model._get_logits_processor(config, input_ids_seq_length=ids.shape[1])
    assert isinstance(made, LogitsProcessorList)
    return made(ids, logits.clone())


def own_logits(profile, ids, logits, values):
    chain = make_job(profile).assembly.chain
    for name, value in values.items():
        stage, field = NAMES[name]
        if chain.get(stage) is None:
            chain = chain.with_stage(stage, **{field: value})
        chain = Chain(tuple((n, p.replace(**{field: value}) if n == stage else p) for n, p in chain))
    history, pipeline = History(), Pipeline(Env(VOCAB))
    chain = Chain(chain.active().stages)
    for slot, prompt in enumerate(map(tuple, ids.tolist())):
        history.admit(slot, prompt)
        pipeline.admit(slot, chain, Admission(prompt))
    return pipeline(logits.clone(), Rows.build(history, list(range(len(ids)))))


def assert_rows_are_those_of_transformers(profile, model, name, *, ties):
    ids, logits = random_rows(ROWS, VOCAB, ties=ties, extremes=True)
    theirs, own = hf_logits(model, ids, logits, CHAINS[name]), own_logits(profile, ids, logits, CHAINS[name])
    # A sum that ends within its rounding of a threshold may fall on either side: transformers adds float32.
    assert far_rows(own, theirs, ties=ties) <= ROWS // 250, (name, ties)


def assert_texts_are_those_of_transformers(model, name):
    values = CHAINS[name]
    found = steps("hf", **{OPTIONS.get(key, key): value for key, value in values.items()})
    pairs = [(own, hf_logits(model, ids, logits, values)) for ids, logits, own in found]
    assert far_steps(pairs) <= 0.004, name


def test_all_of_its_chain_makes_the_distributions_of_transformers(profile, model):
    assert_rows_are_those_of_transformers(profile, model, "all", ties=False)
    assert_texts_are_those_of_transformers(model, "usual")


def test_its_chain_makes_the_distributions_of_transformers(profile, model):
    for name in CHAINS:
        for ties in (False, True):
            assert_rows_are_those_of_transformers(profile, model, name, ties=ties)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_transformers(model):
    for name in CHAINS:
        assert_texts_are_those_of_transformers(model, name)


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
