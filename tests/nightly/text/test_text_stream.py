"""Stop strings and patterns: the properties of tests/slow/text/test_text_stream.py, of many more texts."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.slow.text import test_text_stream as suite
from tests.slow.text.test_text_stream import patterns, split_texts, stop_lists


def test_many_splits_stop_where_the_plain_definitions_do():
    for test, strategies in (
        (suite.test_every_split_gives_what_plain_search_gives, (split_texts(), stop_lists, st.booleans())),
        (suite.test_no_more_is_held_than_the_longest_real_prefix, (st.text("ab\n", max_size=24), stop_lists)),
        (suite.test_literal_patterns_stop_where_strings_do, (split_texts(), stop_lists)),
        (
            suite.test_every_split_gives_what_trying_a_pattern_after_each_character_gives,
            (split_texts(), patterns),
        ),
    ):
        settings(max_examples=2000)(given(*strategies)(test.hypothesis.inner_test))()
