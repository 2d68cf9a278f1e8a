"""The same seed gives the same text in every way; `scripts/same_text.py` has 200 requests and 31 others."""

from scripts.same_text import among, make_asks, through_batch, through_http, through_python, through_run
from tests.helpers.quick import quick_gencli


def test_the_same_seed_is_the_same_text_whatever_asks_and_whoever_is_beside(server):
    asks, program = make_asks(8), [str(quick_gencli())]
    expected = through_python(asks)
    assert len(set(expected)) == 8
    assert through_batch(asks, program) == expected
    assert through_run(asks[:4], program) == expected[:4]
    address = server.root.removeprefix("http://")
    assert through_http(asks, address) == expected
    texts, others = among(asks, address, 7)
    assert texts == expected
    assert others.num_whole
    assert server.is_idle()
