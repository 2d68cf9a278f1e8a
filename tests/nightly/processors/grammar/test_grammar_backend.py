"""The contract of a grammar back end, on many random walks."""

import pytest

from tests.processors.grammar.test_grammar_backend import BACKENDS
from tests.slow.processors.grammar.test_grammar_backend import take_walks

WALKS = {"toy": 1000, "no end": 100, "qwen2": 30}


@pytest.mark.parametrize("vocabulary", WALKS)
@pytest.mark.parametrize("name", BACKENDS)
def test_many_walks_end_where_a_fresh_replay_ends(name, vocabulary):
    take_walks(name, vocabulary, WALKS[vocabulary])
