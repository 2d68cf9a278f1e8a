"""Samples of a request are made as slots come free: their number costs nothing before their turn."""

import tracemalloc
from dataclasses import replace
from itertools import islice

from gencli.core.events import Finish
from gencli.core.request import Limits
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.runtime.compiled_grammars import RetryingEngine
from tests.engine.harness import TOKENIZER, engine, request

MANY = 1_000_000


def asked(n, **rest):
    return replace(request("hi", max_tokens=2), n=n, **rest)


def test_a_million_samples_are_queued_in_flat_memory():
    for best_of in (None, MANY):
        on = Engine(FakeRunner(), TOKENIZER)
        list(RetryingEngine(on).run())
        tracemalloc.start()
        attempts = RetryingEngine(on)
        attempts.submit(asked(1 if best_of else MANY, best_of=best_of))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**20, best_of


def test_what_waits_ends_and_what_runs_goes_on():
    on = engine(max_batch=2)
    on.submit(asked(500))
    events = on.run()
    first = list(islice(events, 1))
    ended = [event for event in on.end_waiting() if isinstance(event, Finish)]
    rest = [event for event in events if isinstance(event, Finish)]
    assert {event.reason for event in ended} == {"interrupted"}
    assert len(ended) + len(rest) + sum(isinstance(event, Finish) for event in first) == 500


def test_samples_that_have_not_begun_run_out_of_time_too():
    on = engine(max_batch=2)
    on.submit(asked(300, limits=Limits(max_tokens=2, max_time=1e-9)))
    ends = [event for event in on.run() if isinstance(event, Finish)]
    assert sorted(event.sample for event in ends) == list(range(300))
    assert {event.matched for event in ends} == {"max_time"}
