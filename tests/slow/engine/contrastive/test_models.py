"""A contrastive search writes what the search written plainly writes, on a bundled and on a random model."""

from dataclasses import replace
from functools import partial
from importlib.resources import files

import pytest
import torch
import transformers as hf

from gencli import LLM
from gencli.models.decoder.decoder import DecoderRunner
from tests.engine.contrastive.harness import Plain, request, tokens
from tests.models.native import native_decoder
from tests.models.tiny_models import base

PROMPTS = ("Hello", "the cat sat on the mat", "a")


def states_of(model, ids):
    """Logits and last states by transformers."""
    states = model.base_model(torch.tensor([ids])).last_hidden_state[0]
    return model.lm_head(states), states


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = hf.LlamaConfig(**base(vocab_size=258, num_hidden_layers=3, initializer_range=0.15))
    return hf.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="module")
def runner(model):
    return DecoderRunner(native_decoder(model), max_lanes=16)


def test_the_stages_make_the_distribution_and_the_candidates(model, runner):
    for chain in (
        "repetition=1.4 | top_k=2",
        "no_repeat_ngram=2 | temperature=1.5 | top_p=0.3",
        "mirostat:version=2,tau=2,eta=0.5",
    ):
        one = request(PROMPTS[1], chain=chain, max_tokens=14)
        assert tokens([one], runner=runner)[one.id] == Plain(partial(states_of, model)).ids(one, chain), chain


def test_a_prompt_in_chunks_beside_others_is_as_alone(runner):
    asked = [
        request("a long prompt that is read in chunks", max_tokens=10),
        request("b", alpha=0.3, k=2, max_tokens=10),
    ]
    alone = {one.id: tokens([one], runner=runner)[one.id] for one in asked}
    for step_tokens, max_batch in ((3, 6), (9, 4), (64, 8)):
        assert tokens(asked, runner=runner, step_tokens=step_tokens, max_batch=max_batch) == alone


def check(model, runner, alpha, k):
    plain = Plain(partial(states_of, model))
    asked = [request(text, alpha=alpha, k=k, max_tokens=14) for text in PROMPTS]
    assert tokens(asked, runner=runner) == {one.id: plain.ids(one) for one in asked}, (alpha, k)


def check_bundled(alpha, k):
    with LLM("tiny") as llm:
        model = hf.AutoModelForCausalLM.from_pretrained(files("gencli") / "assets" / "tiny").eval()
        plain = Plain(partial(states_of, model), llm.engine.eos_ids)
        ids = tuple(llm.tokenizer.encode("Once upon a time"))
        one = replace(request(alpha=alpha, k=k, max_tokens=16), prompt_ids=ids)
        assert tokens([one], on=llm.engine)[one.id] == plain.ids(one), (alpha, k)


def test_tokens_are_those_of_the_search_written_plainly(model, runner):
    for alpha, k in ((0.3, 2), (0.6, 4)):
        check(model, runner, alpha, k)


def test_the_bundled_model_writes_what_the_search_written_plainly_writes():
    check_bundled(0.6, 4)
