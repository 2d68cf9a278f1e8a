"""Of long prompts the engine tells how far they are read, before each step that reads on."""

from gencli.core.events import Error, Finish, Reading, Token
from gencli.core.request import Beams
from gencli.models.other_runners import FakeRunner
from gencli.results.run_results import PromptProgress
from tests.engine.harness import TOKENIZER, events_of, request

LONG = "x" * 300


def events(*requests, **options):
    return events_of(requests, runner=FakeRunner(258), max_batch=4, **options)


def told(found):
    return [(event.request, event.done, event.total) for event in found if isinstance(event, Reading)]


def test_a_long_prompt_is_told_of_before_each_of_its_chunks():
    found = events(request(LONG, max_tokens=2), step_tokens=100)
    size = len(TOKENIZER.encode(LONG))
    assert told(found) == [(LONG, done, size) for done in (0, 100, 200)]
    assert not any(isinstance(event, Reading) for event in found[3:])
    assert told(events(request("short", max_tokens=2), step_tokens=2)) == []


def test_samples_that_are_chosen_among_tell_of_no_sample_that_is_not_wanted():
    for options in ({"best_of": 3}, {"beams": Beams(2), "draw": "greedy"}, {"n": 3}):
        found = events(request(LONG, max_tokens=2, **options))
        assert told(found)[0] == (LONG, 0, len(TOKENIZER.encode(LONG))), options
        samples = {event.sample for event in found if isinstance(event, Reading)}
        assert samples <= {*range(options.get("n", 1))}, options


def test_texts_are_those_of_an_engine_that_nobody_asks():
    found = events(request(LONG, max_tokens=5), request("short", max_tokens=5))
    ends = {event.request: event.text for event in found if isinstance(event, Finish)}
    for prompt in (LONG, "short"):
        (alone,) = [e for e in events(request(prompt, max_tokens=5)) if isinstance(e, Finish)]
        assert ends[prompt] == alone.text


def test_progress_counts_a_prompt_once_and_ends_with_its_text():
    shown = PromptProgress()
    assert shown.text == ""
    for sample, done in ((0, 512), (1, 0)):
        shown.add(Reading("a", sample, done, 901))
    assert shown.text == "reading a prompt: 512 of 901 tokens"
    shown.add(Reading("b", 0, 100, 1100))
    assert shown.text == "reading 2 prompts: 612 of 2,001 tokens"
    shown.add(Token("a", 0, "", (1,)))
    shown.add(Error("b", 0, "X", "x", ""))
    assert shown.text == ""
