"""The preset hf-default against the transformers that is installed: values, processors, length."""

import re

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList

from gencli.config.job import make_job
from gencli.config.layers import gather_presets
from gencli.config.model_defaults import _LACKING
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.cli.conftest import ROOT
from tests.config.presets.test_presets import SHIPPED
from tests.models.tiny_models import VOCAB, build

DEFAULTS = GenerationConfig._get_default_generation_params()


@pytest.fixture(scope="module")
def preset():
    return gather_presets("hf-default")


@pytest.fixture(scope="module")
def model():
    return build("llama")


def test_values_are_the_defaults_of_transformers(preset):
    chain = make_job(preset).assembly.chain
    assert {name: getattr(params, params.main()) for name, params in chain} == {
        "repetition": DEFAULTS["repetition_penalty"],
        "temperature": DEFAULTS["temperature"],
        "top_k": DEFAULTS["top_k"],
        "top_p": DEFAULTS["top_p"],
        "min_p": DEFAULTS.get("min_p") or 0.0,
    }
    assert preset["max_tokens"] == DEFAULTS["max_length"]


def test_what_gencli_lacks_is_off_by_default():
    assert {key: DEFAULTS[key] for key in _LACKING if DEFAULTS.get(key) not in (None, _LACKING[key])} == {}


def hf_logits(model, ids, logits, **values):
    """What transformers' own processors of a sampled generate() make of the logits."""
    config, _ = model._prepare_generation_config(None, do_sample=True, max_new_tokens=20, **values)
    made = model._get_logits_processor(config, input_ids_seq_length=ids.shape[1])
    assert isinstance(made, LogitsProcessorList)
    return made(ids, logits.clone())


def own_logits(preset, ids, logits, **values):
    chain = make_job(preset).assembly.chain
    for name, value in values.items():
        chain = chain.with_stage(name, **{chain.get(name).main(): value})
    history, pipeline = History(), Pipeline(Env(VOCAB))
    prompt = tuple(ids[0].tolist())
    history.admit(0, prompt)
    pipeline.admit(0, Chain(chain.active().stages), Admission(prompt))
    return pipeline(logits, Rows.build(history, [0]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "values",
    [{}, {"temperature": 0.7, "repetition": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02}],
    ids=["defaults", "all on"],
)
def test_its_chain_makes_the_distribution_of_transformers(preset, model, values, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCAB, (1, 8), generator=generator)
    logits = (torch.randn(1, VOCAB, generator=generator) * 8).round() / 4  # full of ties
    names = {"repetition": "repetition_penalty"}
    theirs = hf_logits(model, ids, logits, **{names.get(key, key): value for key, value in values.items()})
    own = own_logits(preset, ids, logits, **values)
    torch.testing.assert_close(own.log_softmax(-1), theirs.log_softmax(-1))


def test_its_length_is_that_of_generate(preset, model):
    with pytest.warns(UserWarning, match="max_length"):
        out = model.generate(torch.tensor([[5, 6, 7]]), do_sample=True)
    assert out.shape[1] - 3 == preset["max_tokens"]


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.endswith("-default")])
def test_a_preset_named_after_a_library_says_what_it_was_checked_against(name):
    text = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    assert re.search(r"^# Checked against .*\b(5\.\d+|[0-9a-f]{8})\b", text, re.MULTILINE)
