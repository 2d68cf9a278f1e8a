"""Samples of a request are made as slots come free: their number costs nothing before their turn."""

from dataclasses import replace

from tests.engine.harness import engine, generate, texts
from tests.engine.test_samples import asked


def test_samples_are_those_of_any_order_and_requests_of_many_take_their_turns():
    assert texts([asked(150)], max_batch=3) == texts([asked(150)], max_batch=64)
    ends = generate([replace(asked(100), id="a"), replace(asked(1), id="b")], on=engine(max_batch=2))
    assert len(ends) == 101
