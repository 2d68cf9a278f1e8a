"""The contract of a grammar back end, on random walks: accept, refuse, take back, copy, look ahead."""

import pytest

from tests.processors.grammar.backends.test_backends import BACKENDS
from tests.slow.processors.grammar.backends.test_backends import take_walks

WALKS = {"toy": 1000, "no end": 100, "qwen2": 30}


@pytest.mark.parametrize("vocabulary", WALKS)
@pytest.mark.parametrize("name", BACKENDS)
def test_many_walks_end_where_a_fresh_replay_ends(name, vocabulary):
    take_walks(name, vocabulary, WALKS[vocabulary])
