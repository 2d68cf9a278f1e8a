"""Scores of prompts equal a plain float64 reference, whatever is cached, sliced, beside them or behind."""

from gencli.core.events import Finish, Token
from tests.engine.test_guidance import Remembering
from tests.engine.test_prompt_scores import LONG, assert_scored, run, scored


def test_scores_are_those_of_one_pass_whatever_the_slices_and_neighbours():
    found, events = run([scored(LONG)], runner=Remembering())
    assert_scored(found[LONG], LONG)
    (end,) = [event for event in events if isinstance(event, Finish)]
    assert (end.text, end.reason, end.matched, end.completion_tokens) == ("", "length", "max_tokens", 0)
    assert not [event for event in events if isinstance(event, Token)]
    texts = [LONG, LONG[:100] + "and", "one two", "ab"]
    for step_tokens in (4, 7, 64):
        options = {"runner": Remembering(), "step_tokens": step_tokens, "max_batch": 3}
        found, _ = run([scored(text) for text in texts], **options)
        for text in texts:
            assert_scored(found[text], text)
