"""A comparison along a text: the measures are those of softmaxes, and B's choices are those of runs."""

import math
from dataclasses import replace

import pytest
import torch

from gencli.explain.compare import Comparison, Output, SideBySide, Summary, summarize
from gencli.explain.replay import Replay
from processors.base import Admission, Env
from processors.chain import Chain
from processors.explain.divergence import divergence
from processors.explain.kept import KeptLogits
from processors.rng import Stream, gumbel, row_keys, signed
from tests.engine.harness import TOKENIZER, Finish, Token, engine, request

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


def cut(logits, temperature, k):
    """The processed logits of `temperature | top_k`."""
    scaled = logits / temperature
    return scaled.masked_fill(scaled < scaled.topk(k).values[-1], -torch.inf)


def test_places_are_those_of_softmaxes_and_of_the_noise():
    for heat, k in [(0.7, 40), (1.3, 7), (1.0, 2)]:
        places, views = compared("temperature=1.1 | top_k=60", f"temperature={heat} | top_k={k}")
        assert sum(place.is_parted for place in places) >= 3, heat
        for place, view in zip(places, views, strict=True):
            p, q = cut(view.kept.values, 1.1, 60), cut(view.kept.values, heat, k)
            expected = divergence(p, q)
            found = place.divergence
            assert (found.tv, found.kl_ba) == pytest.approx((expected.tv, expected.kl_ba), abs=1e-5), heat
            assert math.isinf(found.kl_ab), heat
            seed, position = torch.tensor([signed(view.kept.seed)]), torch.tensor([place.pos])
            noise = gumbel(row_keys(seed, position, Stream.TOKEN), torch.arange(len(q)))
            assert place.b == int((q + noise).argmax()), heat


def test_chains_of_few_or_no_tokens():
    for chain in ["", "top_k=40 | top_p=0.9", "temperature=0", "dry=0.8 | temperature=1.5"]:
        places, _ = compared(chain, chain)
        assert {(place.b == place.a, place.divergence.tv, place.divergence.kl_ab) for place in places} == {
            (True, 0.0, 0.0)
        }, chain

    places, views = compared("temperature=0", "top_k=30")
    for place, view in zip(places, views, strict=True):
        q = cut(view.kept.values, 1.0, 30).double().softmax(-1)
        assert place.divergence.kl_ab == pytest.approx(-math.log2(q[view.token]), abs=1e-5)
        assert place.divergence.tv == pytest.approx(1 - float(q[view.token]), abs=1e-5)
        assert math.isinf(place.divergence.kl_ba)

    places, _ = compared("", "allowed=[5] | suppress=[5]")
    assert {(place.b, place.divergence, place.unmeasured) for place in places} == {(None, None, "empty")}


def test_what_cannot_be_measured_is_said():
    places, views = compared("top_k=100", 'grammar:kind=regex,text="[a-z ]+"')
    lost = next(pos for pos, view in enumerate(views) if not chr(view.token).islower())
    assert places[lost].unmeasured is None
    assert places[lost].is_parted
    assert {place.unmeasured for place in places[lost + 1 :]} == {"grammar"}

    _, views = compared("top_k=60", "top_k=60")
    changed = [replace(view, token=(view.token + 1) % 256) for view in views]
    places, _ = compared("top_k=60", "top_k=60", views=changed)
    assert {place.unmeasured for place in places} == {"kept"}


def test_few_kept_logits_are_exact_or_say_that_they_are_not():
    whole, views = compared("temperature=1.2 | top_k=10", "top_p=0.7 | top_k=8")
    few = [replace(view, kept=KeptLogits.of(view.kept.values, 12, view.kept.seed)) for view in views]
    for b, said in (("top_p=0.7 | top_k=8", {None}), ("top_k=100", {"kept"})):
        found, _ = compared("temperature=1.2 | top_k=10", b, views=few)
        assert {place.unmeasured for place in found} == said
        for place, right in zip(found, whole, strict=True):
            if place.unmeasured is None:
                assert (place.b, place.decided_b) == (right.b, right.decided_b)
                assert place.divergence.tv == pytest.approx(right.divergence.tv, abs=1e-5)


def test_sums_of_texts_are_those_of_all_their_places():
    places, _ = compared("top_k=60", "temperature=0.7 | top_k=20")
    parts, whole = summarize(places[:7]) + summarize(places[7:]), summarize(places)
    assert (parts.tv_mean, parts.kl_ba_mean) == pytest.approx((whole.tv_mean, whole.kl_ba_mean))
    assert (parts.parted, parts.tv_max, parts.infinite_ab) == (whole.parted, whole.tv_max, whole.infinite_ab)
    assert (whole.measured, whole.kl_ab_mean) == (len(places), None)
    assert Summary().tv_mean is None


def test_texts_part_at_their_first_different_token():
    for a, b, at in [
        ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((), (), None), ((1, 2), (1,), 1),
    ]:  # fmt: skip
        found = Comparison("1", "", Output(a, str(a), "length"), Output(b, str(b), "length"), ())
        assert (found.parted_at, found.is_equal) == (at, at is None), a

    found = Comparison("1", "", Output((1,), "a", "length"), Output((1,), "", "stop"), ())
    assert (found.parted_at, found.is_equal) == (None, False)
