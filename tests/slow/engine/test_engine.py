"""Requests in, events out: the same text in any company, and every end has its reason."""

import random
from collections import defaultdict

import torch

from gencli.core.request import Stops
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import Error, Finish, Scripted, Token, events_of, generate, ids_of, request, texts
from tests.engine.test_engine import crowd


def test_a_request_gives_the_same_text_alone_and_in_any_company():
    requests = list(crowd())
    expected = {key: text for one in requests for key, text in texts([one]).items()}
    assert len(set(expected.values())) > 40
    shuffled = random.Random(1).sample(requests, len(requests))
    for options in (
        {"max_batch": 2},
        {"max_batch": 64},
        {"step_tokens": 7},
        {"max_batch": 3, "step_tokens": 16},
    ):
        assert texts(shuffled if "max_batch" not in options else requests, **options) == expected, options


def test_drafts_change_the_number_of_steps_and_nothing_else():
    requests = [one for one in crowd() if one.n == 1]
    answers = {one.prompt_ids: ids_of(events_of([one]))[one.id, 0] for one in requests}
    drafter = Scripted(answers)
    plain, drafted = generate(requests, max_batch=4), generate(requests, max_batch=4, drafter=drafter)
    assert drafter.proposed > 200
    plain, drafted = (
        {key: (e.text, e.reason, e.completion_tokens) for key, e in ends.items()} for ends in (plain, drafted)
    )
    assert drafted == plain


def test_joined_token_texts_are_the_final_text():
    events = events_of(crowd(20), max_batch=6)
    joined = defaultdict(str)
    for event in events:
        if isinstance(event, Token):
            joined[event.request, event.sample] += event.text
    assert joined == {(e.request, e.sample): e.text for e in events if isinstance(e, Finish)}


def test_what_fails_fails_alone_and_names_its_cause():
    class Broken(FakeRunner):
        def forward(self, plan):
            logits = super().forward(plan)
            logits[0, 5] = torch.nan
            return logits

    good = request("a", key="good")
    slow = Stops(patterns=("(a|aa)+$.b",))
    for bad, runner, kind, said in (
        (request("b", key="bad", chain="allowed=[97] | suppress=[97]"), FakeRunner(), "EmptySupport",
         "After stage 'suppress', for token 1 of"),
        (request("b", key="bad"), Broken(), "NonFiniteLogits", "stage 'model'"),
        (request("a", key="bad", chain="allowed=[97]", stops=slow, max_tokens=80), FakeRunner(),
         "GenerationError", "(a|aa)+"),
    ):  # fmt: skip
        ends = generate([bad, good], runner=runner)
        assert isinstance(ends["bad", 0], Error), said
        assert ends["bad", 0].type == kind
        assert said in ends["bad", 0].message
        assert isinstance(runner, Broken) or ends["good", 0].text == texts([good])["good", 0], said
