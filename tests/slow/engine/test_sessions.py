"""A session reads again only what its prompt does not share with the one before, and says the same."""

from dataclasses import replace

from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.runtime.models import ModelChoice, load
from processors.rng import derive
from tests.engine.harness import generate
from tests.engine.test_sessions import only


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
