"""Contrastive search is the search written plainly, whatever stands beside it."""

from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import product

import pytest
import torch
import transformers as hf

from gencli import LLM
from gencli.core.request import Beams, Guidance, Stops
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.other_runners import FakeRunner
from tests.engine.contrastive_cases import Plain, request, tokens
from tests.engine.harness import TOKENIZER, generate
from tests.engine.harness import request as plain_request
from tests.engine.test_contrastive_search import LETTERS, end_of
from tests.models.native import native_decoder
from tests.models.tiny_models import base


def by_table(runner, ids):
    rows = runner.table[torch.tensor(ids)]
    return rows, rows


def texts_of(ends):
    return {key: (end.text, end.reason) for key, end in ends.items()}


def test_alpha_0_is_a_greedy_draw():
    for text, chain in product(("Hello", "the cat"), ("", LETTERS, "frequency=0.5 | top_p=0.6")):
        greedy = plain_request(text, draw="greedy", chain=chain.partition(" | top_p")[0])
        assert end_of(request(text, alpha=0.0, chain=chain)).text == end_of(greedy).text, (text, chain)


def test_tokens_are_those_of_the_search_written_plainly():
    runner = FakeRunner(258, eos_ids=TOKENIZER.eos_ids)
    plain = Plain(lambda ids: by_table(runner, ids))
    for alpha, k in ((0.1, 5), (0.5, 2), (0.9, 5)):
        asked = [
            request(t, key=t, alpha=alpha, k=k, chain=LETTERS, max_tokens=8) for t in ("ab", "Hello", "e")
        ]
        expected = {one.id: plain.ids(one, LETTERS) for one in asked}
        assert tokens(asked, runner=runner) == expected, (alpha, k)


def test_searches_and_others_of_one_batch_are_as_alone():
    for max_batch in (4, 6, 9):
        rows = [
            request("a", chain=LETTERS),
            request("a long prompt, read in chunks", alpha=0.3, k=3, chain=LETTERS),
            plain_request("drawn", chain=LETTERS),
            plain_request("beams", chain=LETTERS, beams=Beams(3)),
            replace(plain_request("guided", chain=LETTERS), guidance=Guidance(2.0)),
            request("scored", chain=LETTERS, prompt_logprobs=1),
            plain_request("also scored", chain=LETTERS, prompt_logprobs=2),
        ]
        alone = {key: text for row in rows for key, text in texts_of(generate([row])).items()}
        assert texts_of(generate(rows, max_batch=max_batch, step_tokens=6)) == alone, max_batch


def test_a_stop_string_ends_the_text_where_a_candidate_with_it_is_chosen():
    one = request(chain="allowed=[97,98,99,100,101]", max_tokens=40)
    whole = end_of(one).text
    for stop in ("b", "ab", "de"):
        end = end_of(replace(one, stops=Stops(strings=(stop,))))
        assert end.text == whole.partition(stop)[0], stop
        reason = ("stop", stop) if stop in whole else ("length", "max_tokens")
        assert (end.reason, end.matched) == reason, stop


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


def test_tokens_of_models_are_those_of_the_search_written_plainly(model, runner):
    for alpha, k in ((0.3, 2), (0.6, 4)):
        check(model, runner, alpha, k)


def test_the_bundled_model_writes_what_the_search_written_plainly_writes():
    check_bundled(0.6, 4)
