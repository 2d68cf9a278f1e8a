"""With drafts and without, every stage gives the same text; only the number of steps differs."""

from gencli.core.request import Stops
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import Scripted, events_of, generate, ids_of, request


class Counting(FakeRunner):
    """Counts forward passes; wide enough for the ids that the examples name."""

    passes = 0

    def __init__(self):
        super().__init__(vocab_size=300)

    def forward(self, plan):
        self.passes += 1
        return super().forward(plan)


def generated(one, drafter=None):
    runner = Counting()
    events = events_of([one], runner=runner, drafter=drafter)
    return events[-1].text, ids_of(events).get((one.id, 0), ()), runner.passes


def fits(params):
    """The byte vocabulary has 258 ids, and its texts are one token only if they are one byte."""
    values = str(params)
    return not any(word in values for word in ("284", "283", "' the'", "'cat', -"))


def test_a_stop_inside_the_draft_drops_the_rest():
    plain = generate([request("abc", key="k", max_tokens=30)])["k", 0]
    cut = plain.text[len(plain.text) // 2]
    one = request("abc", key="k", max_tokens=30, stops=Stops(strings=(cut,)))
    expected = generate([one])["k", 0]
    answers = {one.prompt_ids: tuple(plain.text.encode())}
    end = generate([one], drafter=Scripted(answers))["k", 0]
    assert (end.text, end.reason, end.completion_tokens) == (
        expected.text,
        expected.reason,
        expected.completion_tokens,
    )
