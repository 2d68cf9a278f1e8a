"""Two chains on one text, and a chain against that of a trace."""

import base64
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gencli.errors import GencliError, GenerationError
from gencli.explain.chain_comparison import Other, compare_trace, known_texts
from gencli.explain.trace_file import read_trace
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.explain_rows import KeptLogits, divergence
from processors.rng import Stream, gumbel, row_keys, signed
from tests.explain.test_chain_comparison import compared as compared_chains
from tests.explain.test_chain_comparison import generated


def test_where_they_part_first_the_own_run_of_b_has_its_token():
    for b in ["top_p=0.5", "temperature=0", "repetition=1.8 | top_k=30", "mirostat:version=2,tau=3"]:
        for draw in ["gumbel", "multinomial"]:
            a = "temperature=1.2 | top_k=50"
            places, views = compared_chains(a, b, draw=draw)
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
        places, views = compared_chains("temperature=1.1 | top_k=60", f"temperature={heat} | top_k={k}")
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
        places, _ = compared_chains(chain, chain)
        assert {(place.b == place.a, place.divergence.tv, place.divergence.kl_ab) for place in places} == {
            (True, 0.0, 0.0)
        }, chain

    places, views = compared_chains("temperature=0", "top_k=30")
    for place, view in zip(places, views, strict=True):
        q = cut(view.kept.values, 1.0, 30).double().softmax(-1)
        assert place.divergence.kl_ab == pytest.approx(-math.log2(q[view.token]), abs=1e-5)
        assert place.divergence.tv == pytest.approx(1 - float(q[view.token]), abs=1e-5)
        assert math.isinf(place.divergence.kl_ba)

    places, _ = compared_chains("", "allowed=[5] | suppress=[5]")
    assert {(place.b, place.divergence, place.unmeasured) for place in places} == {(None, None, "empty")}


def test_few_kept_logits_are_exact_or_say_that_they_are_not():
    whole, views = compared_chains("temperature=1.2 | top_k=10", "top_p=0.7 | top_k=8")
    few = [replace(view, kept=KeptLogits.of(view.kept.values, 12, view.kept.seed)) for view in views]
    for b, said in (("top_p=0.7 | top_k=8", {None}), ("top_k=100", {"kept"})):
        found, _ = compared_chains("temperature=1.2 | top_k=10", b, views=few)
        assert {place.unmeasured for place in found} == said
        for place, right in zip(found, whole, strict=True):
            if place.unmeasured is None:
                assert (place.b, place.decided_b) == (right.b, right.decided_b)
                assert place.divergence.tv == pytest.approx(right.divergence.tv, abs=1e-5)


def test_what_cannot_be_measured_is_said():
    places, views = compared_chains("top_k=100", 'grammar:kind=regex,text="[a-z ]+"')
    lost = next(pos for pos, view in enumerate(views) if not chr(view.token).islower())
    assert places[lost].unmeasured is None
    assert places[lost].is_parted
    assert {place.unmeasured for place in places[lost + 1 :]} == {"grammar"}

    _, views = compared_chains("top_k=60", "top_k=60")
    changed = [replace(view, token=(view.token + 1) % 256) for view in views]
    places, _ = compared_chains("top_k=60", "top_k=60", views=changed)
    assert {place.unmeasured for place in places} == {"kept"}


@pytest.fixture
def trace(gencli, tmp_path):
    """Write a trace with as many kept logits, and return its path."""

    def write(keep, *words):
        path = tmp_path / f"{keep}.jsonl"
        made = gencli(
            "run", "-m", "fake", "--seed", "3", "--max-tokens", "12", "--top-k", "20", "-q", *words,
            "the cat", "--trace", path, "--keep-logits", str(keep),
        )  # fmt: skip
        assert made.code == 0, made.err
        return path

    return write


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def compared(found, chain="temperature=0.8 | top_k=9"):
    (text,) = read_trace(json.dumps(line) for line in found)
    return compare_trace(text, Other(Chain.parse(chain)))


def test_it_is_what_the_model_would_have_given(gencli, trace):
    for keep in [60, 300]:
        path, b = trace(keep), "temperature=0.8 | top_k=9"
        words = ("-m", "fake", "--a", "top_k=20", "--b", b, "--seed", "3", "--max-tokens", "12", "the cat")
        live = gencli("compare", *words, "--format", "json").json
        kept = gencli("compare", "--trace", path, "--b", b, "--format", "json").json
        assert live["summary"]["parted"] > 0, keep
        for one, other in zip(live["texts"][0]["places"], kept["texts"][0]["places"], strict=True):
            ids = {key: [one[key][0], other[key][0]] for key in "ab"}
            assert all(first == second for first, second in ids.values()), keep
            for key in ("tv", "kl_ba"):
                assert one[key] == pytest.approx(other[key], abs=1e-4), keep
            for key in ("pos", "parted", "kl_ab", "decided_by_a", "decided_by_b"):
                assert one[key] == other[key], keep


def test_what_a_trace_does_not_know(trace):
    for limit in [-1, None, "x", 10**30]:
        head, *others = lines(trace(20))
        assert compared([head | {"max_tokens": limit}, *others]) == compared([head, *others]), limit

    (text,) = read_trace(json.dumps(line) for line in lines(trace(20)))
    with pytest.raises(ProcessorsError, match="no tokenizer"):
        compare_trace(text, Other(Chain.parse('grammar:text="[a-z]+",kind=regex')))

    (text,) = read_trace(json.dumps(line) for line in lines(trace(300)))
    assert known_texts(text).items() >= {record["id"]: record["text"] for record in text.records}.items()


def test_logits_that_cannot_be_are_refused(trace):
    for value in [float("nan"), float("inf")]:
        head, *records = lines(trace(20))
        records[0]["logits"]["values"] = base64.b64encode(np.full(20, value, "<f4").tobytes()).decode()
        with pytest.raises(GenerationError, match="a logit is no number"):
            compared([head, *records])

    for rest in [1e300, 800.0, 60.0]:
        head, *records = lines(trace(20))
        records[0]["logits"]["rest"] = rest
        with pytest.raises(GenerationError, match="rest is "):
            compared([head, *records])


HEADS = {
    "no chain": {"chain": None},
    "an unknown stage": {"chain": [{"nothing": {}}]},
    "stages of another kind": {"chain": [3]},
    "a wrong value": {"chain": [{"top_k": {"k": "x"}}]},
    "a grammar without texts": {"chain": [{"grammar": {"text": "a", "kind": "regex"}}]},
    "too many stages": {"chain": [{"top_k": {"k": 3}}] * 10_000},
    "an unknown draw": {"draw": "dice"},
    "a draw that is a list": {"draw": []},
    "no prompt": {"prompt_ids": None},
    "ids beyond the vocabulary": {"prompt_ids": [10**9]},
    "ids that are texts": {"eos_ids": ["a"]},
}


def test_a_wrong_head_or_record_is_refused(trace):
    for change in HEADS.values():
        head, *others = lines(trace(20))
        with pytest.raises(GenerationError):
            compared([head | change, *others])

    for change in RECORDS.values():
        head, first, second, *others = lines(trace(20))
        if "vocab" in change:
            change = {"logits": second["logits"] | change}
        with pytest.raises(GencliError):
            compared([head, first, second | change, *others])


RECORDS = {
    "an id beyond the vocabulary": {"id": 10**6},
    "a negative id": {"id": -1},
    "no logits": {"logits": None},
    "a stage that is not of the chain": {"decided_by": ["none"]},
    "stages of another kind": {"decided_by": [{"a": 1}]},
    "logits of another form": {"logits": {"ids": "?"}},
    "a vast vocabulary": {"vocab": 1 << 23},
    "another vocabulary": {"vocab": 259},
}
