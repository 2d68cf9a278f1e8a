"""DoLa takes from the log-probabilities of the last layer those of an early one of the same forward pass."""

import re
from dataclasses import replace

import pytest
import torch
import transformers as hf

from gencli.core.request import Guidance, LayerContrast
from gencli.engine.guidance import candidates
from gencli.errors import UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.model_runner import ModelSpec
from tests.engine.harness import engine, request
from tests.models.native import native_decoder
from tests.models.tiny_models import base

LOW = LayerContrast("low")


def spec(count, *, is_tied=False):
    cpu = torch.device("cpu")
    return ModelSpec("m", 10, 100, cpu, torch.float32, num_layers=count, is_tied=is_tied)


def test_the_candidates_are_those_of_the_published_code():
    for layers, of, found in (
        ("low", spec(32), tuple(range(0, 16, 2))),
        ("low", spec(32, is_tied=True), tuple(range(2, 16, 2))),
        ("low", spec(2, is_tied=True), (1,)),
        ("high", spec(32), tuple(range(16, 32, 2))),
        ("high", spec(48), tuple(range(28, 48, 2))),
        ("low", spec(48), tuple(range(0, 20, 2))),
        ((6, 2, 6), spec(8), (2, 6)),
    ):
        assert candidates(layers, of) == found, (layers, of, found)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = hf.LlamaConfig(**base(vocab_size=258, num_hidden_layers=6, initializer_range=0.15))
    return hf.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="module")
def runner(model):
    return DecoderRunner(native_decoder(model), max_lanes=16)


def asked(text, dola=LOW, **options):
    return request(text, dola=dola, chain="ignore_eos=true", max_tokens=12, jump="off", **options)


def test_what_cannot_be_is_refused(runner):
    for on, one, said in (
        (runner, asked("a", LayerContrast((6,))), "names the layers (6,)"),
        (runner, asked("a", LayerContrast("low", 2.0)), "The cutoff of `dola` is 2"),
        (runner, replace(asked("a"), guidance=Guidance(2.0)), "guidance and `dola`"),
        (None, asked("a"), "fake:258:0 gives no logits of its layers"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            engine(runner=on).submit(one)
