"""A session reads again only what its prompt does not share with the one before, and says the same."""

from dataclasses import replace

import pytest

from gencli.errors import ModelError, UsageError
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import TOKENIZER, Scripted, engine, generate, request, texts

HELLO = "Hello there. "


def turn(text, number=0, **rest):
    return request(text, key=number, session="chat", max_tokens=9, **rest)


class Watched(FakeRunner):
    """Counts the tokens that are fed."""

    fed = 0

    def forward(self, plan):
        self.fed += plan.num_tokens
        return super().forward(plan)


class Onward(Watched):
    """A model that cannot forget tokens it has read."""

    @property
    def spec(self):
        return replace(super().spec, can_rollback=False)

    def truncate(self, lane, length):
        if length < self.length(lane):
            raise ModelError("Cannot forget.")
        super().truncate(lane, length)


def only(ends):
    (end,) = ends.values()
    return end


def test_the_next_turn_reads_only_what_is_new():
    runner = Watched()
    on = engine(runner=runner)
    first = only(generate([turn(HELLO)], on=on))
    assert (first.prompt_tokens, first.cached_tokens) == (13, 0)
    runner.fed = 0
    longer = turn("Hello there. And more", 1)
    second = only(generate([longer], on=on))
    assert (second.prompt_tokens, second.cached_tokens) == (21, 13)
    assert runner.fed == 8 + second.completion_tokens - 1
    assert second.text == texts([longer])["1", 0]


def test_what_differs_is_forgotten_and_the_text_is_that_of_a_new_engine():
    for then, cached in (("Help", 3), (HELLO, 12), ("Hello", 4), ("Other", 0)):
        for kind in (Watched, Onward):
            on = engine(runner=kind())
            generate([turn(HELLO)], on=on)
            end = only(generate([turn(then, 1)], on=on))
            assert end.cached_tokens == (0 if kind is Onward else cached), (then, kind)
            assert end.text == texts([turn(then, 1)])["1", 0], (then, kind)
    on = engine(runner=Onward())  # which goes on from all it has read
    first = generate([turn(HELLO, chain="suppress=[257] | allowed=" + str(list(range(97, 123))))], on=on)
    end = only(generate([turn(HELLO + only(first).text + "!", 1)], on=on))
    assert end.cached_tokens == len(HELLO) + 8  # the last token of an answer is never fed


def test_rejected_drafts_are_not_kept():
    known = generate([turn(HELLO)], runner=Watched())
    output = tuple(TOKENIZER.encode(only(known).text))
    on = engine(drafter=Scripted({tuple(TOKENIZER.encode(HELLO)): output}))
    assert only(generate([turn(HELLO)], on=on)).text == only(known).text
    longer = turn(HELLO + only(known).text + "?", 1)
    end = only(generate([longer], on=on))
    assert end.cached_tokens >= len(HELLO)
    assert end.text == texts([longer])["1", 0]


def test_parked_lanes_make_room_the_oldest_first():
    on = engine(max_batch=2)
    for name in ("old", "new"):
        generate([request(HELLO, key=name, session=name)], on=on)
    generate([request("Someone else", key="x")], on=on)
    again = [request(HELLO + "!", key=name, session=name) for name in ("new", "old")]
    cached = [only(generate([one], on=on)).cached_tokens for one in again]
    assert cached == [13, 0]


def test_two_requests_of_a_session_at_once_keep_one_lane():
    on = engine(max_batch=2)
    both = [turn(HELLO, 0), turn("Hello you", 1)]
    assert texts(both, on=on) == texts(both)
    crowd = [request(f"Text {i}", key=i) for i in range(4)]
    assert texts(crowd, on=on) == texts(crowd)


def test_a_session_takes_one_sample():
    with pytest.raises(UsageError, match="session"):
        engine().submit(turn(HELLO, n=2))
