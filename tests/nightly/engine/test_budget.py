"""Near the limit of tokens a document is brought to its end; beyond it, completed where that is asked for."""

from itertools import product

from tests.engine.test_jump import BACKENDS
from tests.slow.engine.test_budget import PATTERNS, check_company, check_ends, check_strings, lists, strings

LIMITS = (24, 40, 64, 160)


def test_a_document_that_can_be_ended_in_time_is_with_each_back_end():
    for case in product(LIMITS, BACKENDS):
        check_ends(*case)


def test_strings_with_each_pattern_are_brought_to_their_end():
    for pattern, backend in product(PATTERNS, BACKENDS):
        check_strings(pattern, backend, (16, 17, 20, 40, 60) * 2)


def test_no_way_to_the_end_depends_on_drafts_or_neighbours():
    for max_tokens in LIMITS:
        check_company([lists(seed, max_tokens) for seed in range(5)])
    for pattern in PATTERNS[:2]:
        check_company([strings(seed, pattern, 40) for seed in range(4)])
