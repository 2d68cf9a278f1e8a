"""Forced text is drafted: the same tokens in fewer passes, whatever stands beside it."""

import json
from dataclasses import replace
from itertools import product

from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.fake import FakeRunner
from gencli.runtime.models import ModelChoice, load
from gencli.speculative.base import Drafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import (
    TOKENIZER,
    Finish,
    Scripted,
    Token,
    Watched,
    ends_of,
    events_of,
    generate,
    ids_of,
    request,
)

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


def check(backend, grammar, chain):
    rows = [record(f"r{i}", seed=i, backend=backend, grammar=grammar, chain=chain) for i in range(6)]
    ids, ends, passes = tokens_of(rows)
    plain_ids, plain_ends, plain_passes = tokens_of(off(rows))
    assert (ids, ends) == (plain_ids, plain_ends), (backend, grammar, chain)
    assert passes < plain_passes, (backend, grammar, chain)


def check_near_the_limit(max_tokens):
    rows = [record(f"r{i}", seed=i, max_tokens=max_tokens) for i in range(6)]
    found = tokens_of(rows)[:2]
    assert found == tokens_of(off(rows))[:2], max_tokens
    assert all(len(ids) <= max_tokens for ids in found[0].values()), max_tokens


GRAMMARS = ({}, {"whitespace": 0}, {"canonical": False})
CHAINS = ("temperature=0", "", "temperature=1.5 | frequency=2 | min_p=0.01")


def test_jumps_change_no_token():
    for backend, grammar, chain in zip((*BACKENDS, "xgrammar"), GRAMMARS, CHAINS, strict=True):
        check(backend, grammar, chain)


def test_jumps_change_no_token_of_any_grammar_and_chain():
    for backend, grammar, chain in product(BACKENDS, GRAMMARS, CHAINS):
        check(backend, grammar, chain)


def test_jumps_change_no_token_near_the_limit():
    for max_tokens in (2, 40):
        check_near_the_limit(max_tokens)


def test_jumps_change_no_token_near_each_limit():
    for max_tokens in (1, 12, 60, 75):
        check_near_the_limit(max_tokens)


def test_samples_neighbours_and_turns_of_a_session_jump_for_themselves():
    rows = [record("n", n=4), record("one", seed=3), record("none", jump="off"), request("free", key="free")]
    ids, ends, _ = tokens_of(rows, max_batch=5)
    alone = [tokens_of([one]) for one in rows]
    assert ids == {key: ids for found in alone for key, ids in found[0].items()}
    assert ends == {key: end for found in alone for key, end in found[1].items()}
    turns = [record(f"t{i}", seed=i, session="s") for i in range(3)]
    assert tokens_of(turns, max_batch=1)[:2] == tokens_of(off(turns), max_batch=1)[:2]


def test_forced_text_at_the_start_needs_no_pass_of_its_own():
    choice = GrammarParams(json.dumps(["always this text"]), kind="choice", backend="trie")
    one = replace(request("Say"), chain=Chain((("grammar", choice),)))
    _, ends, passes = tokens_of([one])
    assert (ends["Say", 0], passes) == (("always this text", "grammar", "over"), 1)


def test_a_marker_is_waited_for():
    rows = [record(f"r{i}", seed=i, grammar={"after": "e"}, limits=Limits(400)) for i in range(4)]
    assert tokens_of(rows)[:2] == tokens_of(off(rows))[:2]


def test_what_the_grammar_does_not_know_is_left_to_the_next_drafter():
    one = record()
    ids = tokens_of([one])[0]["k", 0]
    scripted = Scripted({one.prompt_ids: ids})
    assert generate([one], drafter=scripted)["k", 0].text == TOKENIZER.decode(ids)
    assert scripted.proposed > 0


class Idle(Drafter):
    """Proposes nothing."""

    def __init__(self, *, is_autoregressive):
        self.is_autoregressive = is_autoregressive

    def propose(self, asks):
        return [()] * len(asks)


def test_what_is_only_likely_is_left_to_a_model_that_drafts():
    rows = [record(f"r{i}", seed=i) for i in range(6)]
    drafters = (None, Idle(is_autoregressive=True), Idle(is_autoregressive=False))
    # On this clock nothing takes time, so that every guess seems worth its row.
    alone, model, other = (tokens_of(rows, drafter=one, clock=lambda: 0.0) for one in drafters)
    assert alone == other
    assert model[:2] == alone[:2]
    assert model[2] > alone[2]


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


def test_on_a_model_jumps_change_no_token_and_save_passes():
    loaded, found = load(ModelChoice(name="tiny", dtype="float32")), []
    prompt = tuple(loaded.tokenizer.encode("A record:"))
    for jump in ("auto", "off"):
        requests = []
        for seed in range(4):
            grammar = GrammarParams(json.dumps(PERSON))
            chain = Chain((("grammar", grammar), *Chain.parse(f"temperature={seed % 2}").stages))
            requests.append(Request(str(seed), prompt, chain, seed=seed, limits=Limits(120), jump=jump))
        on = Engine(loaded.runner, loaded.tokenizer, max_batch=4)
        found.append([event for event in events_of(requests, on=on) if isinstance(event, Token)])
    assert ids_of(found[0]) == ids_of(found[1])
    assert len(found[0]) < 0.7 * len(found[1])  # an event a step and row
