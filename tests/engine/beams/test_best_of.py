"""Choosing among samples: what their logprobs are, and what they cost."""

from itertools import pairwise

import pytest

from gencli.models.other_runners import FakeRunner
from tests.engine.beams.harness import LETTERS, engine
from tests.engine.harness import TOKENIZER, Scripted, ends_of, events_of, ids_of, request
from tests.transfers import counted_transfers

PROMPT, OTHER = "Hello", "Hi"


def runner():
    return FakeRunner(258, eos_ids=TOKENIZER.eos_ids)


def ended(drafter=None):
    """The texts of PROMPT's samples, chosen beside another request: (logprob, tokens) of each."""
    requests = request(PROMPT, chain=LETTERS, best_of=3, n=3), request(OTHER, chain=LETTERS)
    events = events_of(requests, on=engine(runner=runner(), drafter=drafter))
    ends, ids = ends_of(events), ids_of(events)
    return [(ends[PROMPT, j].logprob, ids[PROMPT, j]) for j in range(3)]


def test_logprobs_of_samples_come_with_the_tokens():
    on = engine(runner=runner(), max_batch=9)
    for letter in "abc":
        on.submit(request(letter, chain="allowed=[97,98,99]", max_tokens=20, best_of=3))
    with counted_transfers() as counts:
        list(on.run())
    assert counts == {"tolist": 20}


def test_the_logprob_of_a_sample_is_the_models_own_of_its_tokens():
    for is_drafted in (False, True):
        drafter = None
        if is_drafted:
            drafter = Scripted({tuple(TOKENIZER.encode(PROMPT)): ended()[0][1]})
        logprobs = runner().table.double().log_softmax(-1)
        for logprob, ids in ended(drafter):
            steps = pairwise([TOKENIZER.encode(PROMPT)[-1], *ids])
            assert logprob == pytest.approx(sum(logprobs[step].item() for step in steps)), is_drafted
        assert drafter is None or drafter.proposed, is_drafted
