"""Two chains on one text, and a chain against that of a trace."""

from dataclasses import replace

import pytest

from gencli.core.events import Finish, Token
from gencli.explain.chain_comparison import Comparison, DivergenceSums, SideBySide, SideOutput, summarize
from gencli.explain.replay import Replay
from processors.base import Admission, Env
from processors.chain import Chain
from tests.engine.harness import TOKENIZER, engine, request

PROMPT = "the cat sat on the mat"


def generated(chain, *, keep=10_000, **options):
    """The request of a chain, its views and its whole text."""
    on, one = engine(), request(PROMPT, key="x", chain=chain, max_tokens=20, **options)
    on.submit(replace(one, trace=2, keep_logits=keep))
    events = [*on.run()]
    views = [view for event in events if isinstance(event, Token) for view in event.views]
    return one, views, next(event for event in events if isinstance(event, Finish))


def compared(a, b, *, views=None, **options):
    """The places of chain B along the text of chain A, and A's views."""
    one, own, _ = generated(a, **options)
    views = own if views is None else views
    env, told = Env(views[0].kept.vocab_size, TOKENIZER, (256,)), Admission(one.prompt_ids, (), 20)
    sides = (Replay(Chain.parse(c), env, views[0].kept, draw=one.draw, request=told) for c in (a, b))
    along = SideBySide(*sides)
    return [along.place(view.token, view.kept, view.decided_by) for view in views], views


def test_sums_of_texts_are_those_of_all_their_places():
    places, _ = compared("top_k=60", "temperature=0.7 | top_k=20")
    parts, whole = summarize(places[:7]) + summarize(places[7:]), summarize(places)
    assert (parts.tv_mean, parts.kl_ba_mean) == pytest.approx((whole.tv_mean, whole.kl_ba_mean))
    assert (parts.parted, parts.tv_max, parts.infinite_ab) == (whole.parted, whole.tv_max, whole.infinite_ab)
    assert (whole.measured, whole.kl_ab_mean) == (len(places), None)
    assert DivergenceSums().tv_mean is None


def test_texts_part_at_their_first_different_token():
    for a, b, at in [
        ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((), (), None), ((1, 2), (1,), 1),
    ]:  # fmt: skip
        found = Comparison("1", "", SideOutput(a, str(a), "length"), SideOutput(b, str(b), "length"), ())
        assert (found.parted_at, found.is_equal) == (at, at is None), a

    found = Comparison("1", "", SideOutput((1,), "a", "length"), SideOutput((1,), "", "stop"), ())
    assert (found.parted_at, found.is_equal) == (None, False)
