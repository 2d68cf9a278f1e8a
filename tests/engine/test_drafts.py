"""Drafts, and text that a grammar or a stage forces: the same tokens in fewer passes."""

import json
from dataclasses import replace

from gencli.core.events import Finish
from gencli.core.request import Drafting, Stops
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import Drafter
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import TOKENIZER, Scripted, Watched, ends_of, events_of, generate, ids_of, request


class Counting(FakeRunner):
    """Counts forward passes; wide enough for the ids that the examples name."""

    passes = 0

    def __init__(self):
        super().__init__(vocab_size=300)

    def forward(self, plan):
        self.passes += 1
        return super().forward(plan)


def generated(one, drafter=None):
    runner = Counting()
    events = events_of([one], runner=runner, drafter=drafter)
    return events[-1].text, ids_of(events).get((one.id, 0), ()), runner.passes


def fits(params):
    """The byte vocabulary has 258 ids, and its texts are one token only if they are one byte."""
    values = str(params)
    return not any(word in values for word in ("284", "283", "' the'", "'cat', -"))


def test_a_stop_inside_the_draft_drops_the_rest():
    plain = generate([request("abc", key="k", max_tokens=30)])["k", 0]
    cut = plain.text[len(plain.text) // 2]
    one = request("abc", key="k", max_tokens=30, stops=Stops(strings=(cut,)))
    expected = generate([one])["k", 0]
    answers = {one.prompt_ids: tuple(plain.text.encode())}
    end = generate([one], drafter=Scripted(answers))["k", 0]
    assert (end.text, end.reason, end.completion_tokens) == (
        expected.text,
        expected.reason,
        expected.completion_tokens,
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


FORCED = 'force:text=" So the answer is: ",at=tokens,after_tokens=4'
BUDGET = 'reasoning_budget:tokens=6,start="<t>",end="</t>",message="(enough)"'


def test_forced_text_is_verified_in_one_pass_and_samples_share_it():
    one = request("a", chain=FORCED, max_tokens=40)
    text, ids, passes = generated(one)
    assert (text, ids) == generated(replace(one, jump="off"))[:2]
    assert passes <= 40 - len(" So the answer is: ") + 2
    ruled = replace(one, drafting=Drafting("none"))
    assert generated(ruled)[:2] == (text, ids)
    texts = {end.text for end in generate([replace(one, n=3)]).values()}
    assert len(texts) == 3
    assert all(text[4:].startswith(" So the answer is: ") for text in texts)


def test_the_result_begins_behind_thinking_that_was_cut():
    for prompt in ("think: <t>", "think: <t>\n"):
        grammar = GrammarParams(json.dumps(["yes", "no"]), kind="choice", backend="trie", after="</t>")
        one = request(prompt, chain=BUDGET, max_tokens=40)
        one = replace(one, chain=replace(one.chain, stages=(*one.chain.stages, ("grammar", grammar))))
        text = generated(one)[0]
        thought, _, answer = text.partition("</t>")
        assert thought.endswith("(enough)"), prompt
        assert answer in ("yes", "no"), prompt
        assert generated(replace(one, jump="off"))[0] == text, prompt
        assert generated(one, Wrong())[0] == text, prompt


class Wrong(Drafter):
    """Proposes what is never there."""

    def propose(self, asks):
        return [(0, 1, 2)[: ask.most] for ask in asks]
