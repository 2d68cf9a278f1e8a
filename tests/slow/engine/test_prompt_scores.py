"""Scores of prompts equal a plain float64 reference, whatever is cached, sliced, beside them or behind."""

from gencli.core.events import Finish, PromptScores, Token
from gencli.core.request import Beams, Guidance
from tests.engine.harness import request
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


def test_scoring_the_prompt_changes_no_output():
    def outputs(**options):
        wanted = [request(text, chain="temperature=0.9", **options) for text in (LONG, "Hello", "x")]
        wanted += [
            request("two", n=2, chain="temperature=0.9", **options),
            request("b", beams=Beams(2), **options),
        ]
        wanted += [request("g", guidance=Guidance(2.0), **options), request("c", best_of=3, n=1, **options)]
        found, events = run(wanted, runner=Remembering(), max_batch=4)
        return found, {(e.request, e.sample): e.text for e in events if isinstance(e, Finish)}, events

    (nothing, plain, _), (found, texts, events) = outputs(), outputs(prompt_logprobs=2)
    assert nothing == {}
    assert texts == plain
    assert_scored(found[LONG], LONG)
    assert set(found) == {LONG, "Hello", "x", "two", "b", "g", "c"}
    for name in found:
        of_one = [event for event in events if event.request == name and getattr(event, "sample", 0) == 0]
        kinds = [type(event) for event in of_one if isinstance(event, PromptScores | Token)]
        assert kinds.index(PromptScores) == 0
        assert kinds.count(PromptScores) == 1
