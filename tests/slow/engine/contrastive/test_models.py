"""A contrastive search writes what the search written plainly writes, on a bundled and on a random model."""

from dataclasses import replace
from functools import partial
from importlib.resources import files

import transformers as hf

from gencli import LLM
from tests.engine.contrastive.harness import Plain, request, tokens
from tests.engine.contrastive.test_models import PROMPTS, model, runner, states_of


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
