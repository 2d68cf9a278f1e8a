"""A session reads again only what its prompt does not share with the one before, and says the same."""

from dataclasses import replace

import pytest

from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.text.tokenizer import ByteTokenizer
from processors.rng import derive
from tests.engine.harness import engine, generate
from tests.engine.test_sessions import only
from tests.models.tiny_models import build


def test_the_bundled_model_says_the_same_with_and_without_its_session():
    models = [load(ModelChoice("tiny", max_batch=1)) for _ in range(2)]
    on = Engine(models[0].runner, models[0].tokenizer, max_batch=1)
    anew = Engine(models[1].runner, models[1].tokenizer, max_batch=1, share_prefixes=False)
    tokenizer = models[0].tokenizer
    messages = []
    for number, said in enumerate(["My name is Mia.", "Tell me a sad story.", "What is my name?"]):
        messages.append({"role": "user", "content": said})
        ids = tuple(tokenizer.encode(tokenizer.render_chat(messages), special=False))
        one = Request(str(number), ids, seed=derive(5, number), limits=Limits(60), session="chat")
        kept, fresh = only(generate([one], on=on)), only(generate([replace(one, session="")], on=anew))
        assert kept.text == fresh.text
        assert (kept.cached_tokens > 0, fresh.cached_tokens) == (number > 0, 0)
        messages.append({"role": "assistant", "content": kept.text})


@pytest.mark.parametrize(("kind", "cached"), [("llama", 10), ("stablelm", 10), ("mamba", 0)])
def test_every_kind_of_model_goes_on_and_goes_back(kind, cached):
    model, tokenizer = build(kind), ByteTokenizer()
    on = Engine(HFRunner(model, max_lanes=1), tokenizer, max_batch=1)
    ids = tuple(b"hello there (some) words")

    def both():
        one = Request("0", ids, limits=Limits(12), session="x")
        anew = Engine(HFRunner(model, max_lanes=1), tokenizer, max_batch=1)
        kept, fresh = (only(generate([one], on=engine)) for engine in (on, anew))
        assert kept.text == fresh.text
        return kept

    ids += tuple(both().text.encode()) + tuple(b" and")
    assert both().cached_tokens == len(ids) - 5
    ids = ids[:10] + tuple(b"abc")
    assert both().cached_tokens == cached
