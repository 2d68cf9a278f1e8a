"""Drafts, and text that a grammar or a stage forces: the same tokens in fewer passes."""

import json
from dataclasses import replace
from itertools import product

from gencli.core.events import Token
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.runtime.model_loading import ModelChoice, load
from gencli.speculative.drafter import Drafter
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from processors.testing.examples import EXAMPLES
from tests.engine.harness import TOKENIZER, Scripted, events_of, generate, ids_of, request
from tests.engine.test_drafts import (
    BACKENDS,
    FORCED,
    PERSON,
    Counting,
    fits,
    generated,
    off,
    record,
    tokens_of,
)


def check(name, params):
    one = replace(request("the cat sat on the", max_tokens=20, jump="off"), chain=Chain(((name, params),)))
    text, ids, passes = generated(one)
    drafted_text, drafted_ids, drafted_passes = generated(one, Scripted({one.prompt_ids: ids}))
    assert (drafted_text, drafted_ids) == (text, ids), (name, params)
    if len(ids) > 8:
        assert drafted_passes < passes, (name, params)


def test_text_with_drafts_is_text_without():
    for spec in BUILTIN:
        for params in filter(fits, EXAMPLES[spec.params][:1]):
            check(spec.name, params)


def check_jumps(backend, grammar, chain, count=6):
    rows = [record(f"r{i}", seed=i, backend=backend, grammar=grammar, chain=chain) for i in range(count)]
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
        check_jumps(backend, grammar, chain, count=2)


class Idle(Drafter):
    """Proposes nothing."""

    def __init__(self, *, is_autoregressive):
        self.is_autoregressive = is_autoregressive

    def propose(self, asks):
        return [()] * len(asks)


def test_what_is_only_likely_is_left_to_a_model_that_drafts():
    rows = [record(f"r{i}", seed=i) for i in range(3)]
    drafters = (None, Idle(is_autoregressive=True), Idle(is_autoregressive=False))
    # On this clock nothing takes time, so that every guess seems worth its row.
    alone, model, other = (tokens_of(rows, drafter=one, clock=lambda: 0.0) for one in drafters)
    assert alone == other
    assert model[:2] == alone[:2]
    assert model[2] > alone[2]


def test_on_a_model_jumps_change_no_token_and_save_passes():
    loaded, found = load(ModelChoice(name="tiny", dtype="float32")), []
    prompt = tuple(loaded.tokenizer.encode("A record:"))
    for jump in ("auto", "off"):
        requests = []
        for seed in range(2):
            grammar = GrammarParams(json.dumps(PERSON))
            chain = Chain((("grammar", grammar), *Chain.parse(f"temperature={seed % 2}").stages))
            requests.append(Request(str(seed), prompt, chain, seed=seed, limits=Limits(120), jump=jump))
        on = Engine(loaded.runner, loaded.tokenizer, max_batch=4)
        found.append([event for event in events_of(requests, on=on) if isinstance(event, Token)])
    assert ids_of(found[0]) == ids_of(found[1])
    assert len(found[0]) < 0.7 * len(found[1])  # an event a step and row


def test_what_the_grammar_does_not_know_is_left_to_the_next_drafter():
    one = record()
    ids = tokens_of([one])[0]["k", 0]
    scripted = Scripted({one.prompt_ids: ids})
    assert generate([one], drafter=scripted)["k", 0].text == TOKENIZER.decode(ids)
    assert scripted.proposed > 0


AT_END = 'force:text="-fin-",at=end'
FORCING_CHAINS = (FORCED, AT_END, f"{FORCED} | repetition=1.3 | temperature=0.8")


def check_company(chain, jump):
    many = [request(f"text {n}", chain=chain, max_tokens=30, jump=jump) for n in range(5)]
    alone = {one.id: generated(replace(one, jump="off"))[:2] for one in many}
    others = [request(f"other {n}", max_tokens=20) for n in range(4)]
    together = generate([*many, *others], runner=Counting(), max_batch=3)
    for one in many:
        text, ids = alone[one.id]
        assert together[one.id, 0].text == text, (chain, jump)
        assert generated(one, Scripted({one.prompt_ids: ids}))[:2] == (text, ids), (chain, jump)
    texts = [text for text, _ in alone.values()]
    assert sum("So the answer is" in text or "-fin-" in text for text in texts) >= 4, (chain, jump)


def test_a_text_in_company_and_with_drafts_is_that_of_a_request_alone():
    for chain, jump in ((FORCED, "auto"), (AT_END, "off"), (FORCING_CHAINS[2], "auto")):
        check_company(chain, jump)
