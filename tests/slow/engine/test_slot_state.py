"""Slots and KV lanes: which one a request takes, what it shares and keeps, sessions, long rope."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from gencli.core.request import Beams, Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.engine.scheduler import WINDOW
from gencli.models.hf_runner import HFRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter, SuffixDrafter
from gencli.text.tokenizer import ByteTokenizer
from processors.rng import derive
from tests.engine.harness import engine, generate, request, texts
from tests.engine.test_slot_state import (
    _HEAD,
    _WORD,
    OTHER,
    SYSTEM,
    brief,
    model,
    only,
    order_of,
    read,
    requests,
    rows,
    run,
    runner,
)
from tests.models.fresh import FreshRunner
from tests.models.tiny_models import SWITCH, build, long_rope


def test_texts_are_those_of_each_row_alone_and_what_was_copied_is_told():
    wanted = {key: end.text for one in rows() for key, end in generate([one]).items()}
    for step_tokens, max_batch in ((8, 2), (40, 5), (512, 1), (None, 32)):
        options = {"max_batch": max_batch, "step_tokens": step_tokens}
        fed, ends = read(rows(), **options)
        assert {key: end.text for key, end in ends.items()} == wanted, options
        assert fed == sum(end.prompt_tokens - end.cached_tokens for end in ends.values()), options
        assert texts(rows(), share_prefixes=False, **options) == wanted, options


def test_a_beginning_is_read_once():
    for max_batch, most in ((1, 24), (4, 24), (32, 24), (3, 1)):
        requests = [
            request(f"{SYSTEM}{letter}", key=letter, max_tokens=most) for letter in "abcdefghijklmnop"
        ]
        assert read(requests, max_batch=max_batch)[0] == len(SYSTEM) + len(requests), max_batch
        plain = read(requests, max_batch=max_batch, share_prefixes=False)[0]
        assert plain == sum(len(one.prompt_ids) for one in requests), max_batch


def test_none_is_overtaken_by_more_than_a_window():
    rest = [brief(f"{SYSTEM}{i}", i) for i in range(3 * WINDOW)]
    order = order_of([rest[0], brief(OTHER, "late"), *rest[1:]], max_batch=1)
    assert order.index("late") == WINDOW


@pytest.mark.parametrize("kind", ["llama", "stablelm", "mamba"])
def test_lanes_of_every_kind_are_shared(kind):
    model, tokenizer = build(kind), ByteTokenizer()
    head = tuple(b"some words that all of the prompts begin with ")
    requests = [Request(str(i), (*head, *b"row", 48 + i), seed=i, limits=Limits(8)) for i in range(5)]
    requests.append(replace(requests[0], id="again", n=2))

    def run(batch, **options):
        on = Engine(HFRunner(model, max_lanes=3), tokenizer, max_batch=3, **options)
        return texts(batch, on=on)

    assert run(requests) == run(requests, share_prefixes=False)


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


torch.set_num_threads(1)


@cache
def expected(**rest):
    return run(FreshRunner(model()), requests(**rest), max_batch=1, share_prefixes=False)


def drafter(name):
    if name == "model":
        return ModelDrafter(HFRunner(long_rope("llama", SWITCH + 3), max_lanes=8))
    if name == "early-exit":
        return ModelDrafter(runner().first_layers(1, max_lanes=8))
    return {"ngram": NgramDrafter, "suffix": SuffixDrafter}[name]() if name else None


def check(draft, step_tokens, max_batch):
    options = {"max_batch": max_batch, "step_tokens": step_tokens, "drafter": drafter(draft)}
    assert run(runner(), requests(), **options) == expected(), (draft, step_tokens, max_batch)


def check_companions(step_tokens, negative):
    guidance = Guidance(1.5, negative=negative)
    found = run(runner(), requests(guidance=guidance), step_tokens=step_tokens, drafter=NgramDrafter())
    assert found == expected(guidance=guidance), (step_tokens, negative)


NEGATIVES = (tuple(_HEAD[:5]), (*_HEAD, *_WORD * 4), None)


def test_texts_are_those_of_fresh_passes():
    for case in (("", 16, 3), ("ngram", None, 8), ("model", 16, 8), ("early-exit", None, 3)):
        check(*case)


def test_beams_cross_the_switch_together():
    fresh = run(FreshRunner(model()), requests(beams=Beams(3), n=3), max_batch=3)
    assert run(runner(), requests(beams=Beams(3), n=3)) == fresh


class Counted(HFRunner):
    """Notes how many tokens each step feeds, and how much of a text is copied between lanes."""

    def __init__(self):
        super().__init__(model(), max_lanes=16)
        self.steps = []
        hook = lambda module, args, out: self.steps.append(args[0].numel())  # noqa: E731
        self.hook = model().model.embed_tokens.register_forward_hook(hook)


def test_a_lane_is_read_anew_in_steps_as_a_prompt_is():
    for max_batch in (1, 8):
        on = Counted()
        run(on, requests(), max_batch=max_batch, step_tokens=16)
        on.hook.remove()
        assert max(on.steps) <= 16, max_batch
