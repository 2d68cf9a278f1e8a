"""The window of the queue: how many texts may overtake one that waits."""

from gencli.core.events import Finish
from gencli.core.request import Limits, Request
from gencli.models.other_runners import FakeRunner
from gencli.runtime.wiring import bare_engine
from gencli.text.tokenizer import ByteTokenizer


def order(window):
    """The order in which texts of growing length end, one at a time."""
    engine = bare_engine(FakeRunner(), ByteTokenizer(), max_batch=1, window=window)
    for number in range(6):
        engine.submit(Request(str(number), (number + 1,), limits=Limits(2 + number)))
    return [event.request for event in engine.run() if isinstance(event, Finish)]


def test_fewer_than_the_window_overtake_the_first():
    assert order(1) == ["0", "1", "2", "3", "4", "5"]
    assert order(3).index("0") <= 2
    assert order(64)[0] == "5"  # the longest first, so that none runs alone at the end


def urgent(priorities, *, later=(), window=64, n=1):
    """The order in which requests of these priorities end, one at a time; `later` come after a step."""
    engine = bare_engine(FakeRunner(), ByteTokenizer(), max_batch=1, window=window)
    limits = Limits(3)
    for number, priority in enumerate(priorities):
        engine.submit(Request(str(number), (number + 1,), limits=limits, priority=priority, n=n))
    events = engine.step()
    for number, priority in enumerate(later, start=len(priorities)):
        engine.submit(Request(str(number), (number + 1,), limits=limits, priority=priority))
    events += engine.run()
    return [event.request for event in events if isinstance(event, Finish)]


def test_a_lower_priority_value_begins_first_and_ties_in_order_of_arrival():
    assert urgent([0, 5, 0, -3, 5], window=1) == ["3", "0", "2", "1", "4"]


def test_an_urgent_request_overtakes_all_that_wait():
    assert urgent([1] * 4, later=[0, -1, 2]) == ["0", "5", "4", "1", "2", "3", "6"]
    assert urgent([1, 1], n=3, later=[0], window=1) == ["0", "2", "0", "0", "1", "1", "1"]


def test_more_than_the_window_may_be_urgent():
    last = urgent([0] * 3 + [-1] * 40, later=[-2] * 20, window=2)
    assert sorted(map(int, last[1:21])) == [*range(43, 63)]
    assert last[-3:] == ["0", "1", "2"]
