"""Forced text is drafted: the same tokens in fewer passes, whatever stands beside it."""

import json
from dataclasses import replace

from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import Drafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import TOKENIZER, Finish, Watched, ends_of, events_of, ids_of, request

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "is_active": {"type": "boolean"},
        "home": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Osaka"]}}, "required": ["city"]},
    },
    "required": ["name", "age", "is_active"],
    "additionalProperties": False,
}


BACKENDS = ("xgrammar", "llguidance")


def record(
    key="k", *, seed=0, backend="xgrammar", chain="", max_tokens=200, schema=PERSON, grammar=None, **rest
):
    one = request("A record", key=key, seed=seed, chain=chain, max_tokens=max_tokens, **rest)
    params = GrammarParams(json.dumps(schema), backend=backend, **(grammar or {}))
    return replace(one, chain=Chain((("grammar", params), *one.chain.stages)))


def tokens_of(requests, **options):
    """The ids of each sample, how each ended, and the number of passes."""
    runner = Watched()
    events = events_of(requests, runner=runner, **options)
    ends = {key: (end.text, end.reason, end.document) for key, end in ends_of(events).items()}
    return ids_of(events), ends, len(runner.plans)


def off(requests):
    return [replace(one, jump="off") for one in requests]


def test_forced_text_at_the_start_needs_no_pass_of_its_own():
    choice = GrammarParams(json.dumps(["always this text"]), kind="choice", backend="trie")
    one = replace(request("Say"), chain=Chain((("grammar", choice),)))
    _, ends, passes = tokens_of([one])
    assert (ends["Say", 0], passes) == (("always this text", "grammar", "over"), 1)


class Recording(Drafter):
    """Keeps what it is told."""

    def __init__(self):
        self.slots, self.log = set(), []

    def admit(self, slot, request):
        assert slot not in self.slots
        self.slots.add(slot)

    def propose(self, asks):
        assert {ask.slot for ask in asks} <= self.slots
        assert len({ask.slot for ask in asks}) == len(asks)
        return [(97,)[: ask.most] for ask in asks]

    def observe(self, slot, *, proposed, accepted):
        assert slot in self.slots
        self.log.append((proposed, accepted))

    def release(self, slot):
        self.slots.remove(slot)


def test_a_drafter_hears_of_every_sample_from_start_to_end():
    drafter = Recording()
    on = Engine(FakeRunner(), TOKENIZER, max_batch=3, drafter=drafter)
    for one in [*(request("abc", key=i, n=2) for i in range(4)), request("abc", key="s", session="s")]:
        on.submit(one)
    stream = on.run()
    next(stream)
    assert len(drafter.slots) == 3
    for _ in range(40):
        next(stream)
    on.interrupt()
    assert {event.reason for event in stream if isinstance(event, Finish)} == {"interrupted"}
    assert drafter.slots == set()
    assert {proposed for proposed, _ in drafter.log} == {1}
