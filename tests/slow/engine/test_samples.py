"""Samples of a request are made as slots come free: their number costs nothing before their turn."""

from dataclasses import replace

from gencli.core.events import Finish
from tests.engine.harness import engine, generate, texts
from tests.engine.test_samples import asked


def test_samples_are_those_of_any_order_and_requests_of_many_take_their_turns():
    assert texts([asked(150)], max_batch=3) == texts([asked(150)], max_batch=64)
    ends = generate([replace(asked(100), id="a"), replace(asked(1), id="b")], on=engine(max_batch=2))
    assert len(ends) == 101


def test_the_first_of_a_million_samples_come_at_once_and_an_interrupt_ends_the_rest():
    on = engine()
    on.submit(asked(20_000))
    events = on.run()
    first = next(event for event in events if isinstance(event, Finish))
    assert first.sample < 8
    on.interrupt()
    rest = [event for event in events if isinstance(event, Finish)]
    assert len(rest) == 19_999
    assert rest[-1].reason == "interrupted"
    assert sorted({event.sample for event in (first, *rest)}) == list(range(20_000))
