"""Forced text is drafted: the same tokens in fewer passes, whatever stands beside it."""

from itertools import product

from tests.engine.test_jump import BACKENDS
from tests.slow.engine.test_jump import CHAINS, GRAMMARS, check, check_near_the_limit


def test_jumps_change_no_token_of_any_grammar_and_chain():
    for backend, grammar, chain in product(BACKENDS, GRAMMARS, CHAINS):
        check(backend, grammar, chain)


def test_jumps_change_no_token_near_each_limit():
    for max_tokens in (1, 12, 60, 75):
        check_near_the_limit(max_tokens)
