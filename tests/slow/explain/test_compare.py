"""A comparison along a text: the measures are those of softmaxes, and B's choices are those of runs."""

import math
from dataclasses import replace

import pytest
import torch

from processors.explain_rows import KeptLogits, divergence
from processors.rng import Stream, gumbel, row_keys, signed
from tests.explain.test_compare import compared, generated


def test_where_they_part_first_the_own_run_of_b_has_its_token():
    for b in ["top_p=0.5", "temperature=0", "repetition=1.8 | top_k=30", "mirostat:version=2,tau=3"]:
        for draw in ["gumbel", "multinomial"]:
            a = "temperature=1.2 | top_k=50"
            places, views = compared(a, b, draw=draw)
            first = next(place for place in places if place.is_parted)
            _, own, _ = generated(b, draw=draw)
            ours, theirs = ([view.token for view in one[: first.pos]] for one in (own, views))
            assert ours == theirs, (b, draw)
            assert own[first.pos].token == first.b, (b, draw)
            assert own[first.pos].decided_by == first.decided_b, (b, draw)


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
