"""Requests in, events out: the same text in any company, and every end has its reason."""

import random

from tests.engine.harness import texts
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
