"""The window of the queue: how many texts may overtake one that waits."""

from gencli.core.events import Finish
from gencli.core.request import Limits, Request
from gencli.models.fake import FakeRunner
from gencli.runtime.wiring import bare_engine
from gencli.text.tokenizer import ByteTokenizer


def order(window):
    """The order in which texts of growing length end, one at a time."""
    engine = bare_engine(FakeRunner(), ByteTokenizer(), max_batch=1, window=window)
    for number in range(6):
        engine.submit(Request(str(number), (number + 1,), limits=Limits(2 + number)))
    return [event.request for event in engine.run() if isinstance(event, Finish)]


def test_a_window_of_one_is_first_come_first_served():
    assert order(1) == ["0", "1", "2", "3", "4", "5"]


def test_fewer_than_the_window_overtake_the_first():
    assert order(3).index("0") <= 2
    assert order(64)[0] == "5"  # the longest first, so that none runs alone at the end
