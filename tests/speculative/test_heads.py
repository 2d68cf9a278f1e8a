"""Whole runs with trained draft heads: the text without drafts, or one that only the request decides."""

from dataclasses import replace

import pytest
import torch

from gencli.core.request import Beams, Contrastive, Limits, Stops
from gencli.engine.engine import Engine
from gencli.runtime.wiring import bare_drafter, make_drafter
from gencli.speculative.drafter import OuterDrafter
from tests.engine.harness import events_of, ids_of, request
from tests.speculative.head_runs import (
    CONDITIONS,
    REJECTION,
    choice,
    conditioned,
    drafted,
    loaded,
    outcomes,
    pair,
    plain,
)

FEW = ("eagle3 narrow", "medusa", "mtp deepseek of two layers")


def check_texts(kind, cells, count):
    """Requests of each condition have the texts without drafts in cells (draft tokens, batch size)."""
    requests = [one for name in CONDITIONS for one in conditioned(name, count)]
    expected = outcomes(kind, plain(requests)).texts
    for tokens, max_batch in cells:
        found = outcomes(kind, drafted(kind, requests, tokens), max_batch=max_batch)
        assert found.texts == expected, (tokens, max_batch)
        assert found.is_mixed, (tokens, max_batch)


@pytest.mark.parametrize("kind", ["eagle1", *FEW])
def test_a_text_is_the_one_without_drafts(kind):
    check_texts(kind, [(4, 5)], 1)


def check_chunks(kind, verification, sizes):
    """A last chunk of one token has the states of all others before it, and so could be drafted for."""
    for size in sizes:
        one = request("abcdefghijklm"[:size], key=size, chain="temperature=1.2", max_tokens=12)
        requests = drafted(kind, [one], verification=verification)
        expected = outcomes(kind, requests)
        assert expected.proposed > 0, size
        for step_tokens in (size - 1, size, size + 3):
            found = outcomes(kind, requests, max_batch=1, step_tokens=step_tokens)
            assert found == expected, (size, step_tokens)


@pytest.mark.parametrize("kind", FEW)
def test_the_chunks_of_a_prompt_change_no_text_that_drafts_decide(kind):
    check_chunks(kind, REJECTION, [7])


def check_company(kind, verification, count):
    """Nor does a prefix that the target has in its cache, without the states that the head reads."""
    shared = tuple(b"A beginning that is long enough to be copied from lane to lane. ")
    requests = [replace(one, prompt_ids=shared + one.prompt_ids) for one in conditioned("drawn", count)]
    requests = drafted(kind, requests, verification=verification)
    requests[0] = replace(requests[0], n=2)
    expected = outcomes(kind, requests, max_batch=1)
    assert expected.is_mixed
    others = [replace(one, id=f"other {one.id}") for one in plain(requests)]
    found = outcomes(kind, [*others, *requests[::-1]], max_batch=4, step_tokens=40).texts
    assert {key: found[key] for key in expected.texts} == expected.texts


@pytest.mark.parametrize("kind", FEW)
def test_company_changes_no_text_that_drafts_decide(kind):
    check_company(kind, REJECTION, 2)


def check_ends(kind):
    """Stops and limits lie within drafts."""
    greedy = conditioned("greedy", 2)
    text = outcomes(kind, plain(greedy[:1])).texts["greedy 0", 0][1]
    requests = [replace(greedy[0], id=f"stop {at}", stops=Stops(strings=(text[at],))) for at in (5, 9, 14)]
    requests += [replace(greedy[1], id=f"{most}", limits=Limits(max_tokens=most)) for most in range(1, 8)]
    requests += [replace(greedy[0], id="loop", stops=Stops(loop=2))]
    found = outcomes(kind, drafted(kind, requests))
    assert found.texts == outcomes(kind, plain(requests)).texts
    assert found.accepted > 0


def test_stops_and_limits_within_a_draft_end_the_text_there():
    check_ends("eagle3")


def check_searches(kind):
    """They have states and slots too; the drafter serves every request that may have drafts."""
    searches = [
        request("A search", key="search", chain="", draw="greedy", contrastive=Contrastive(0.5, 3)),
        request("Beams", key="beams", chain="", beams=Beams(3), n=2),
    ]
    requests = conditioned("drawn", 2)
    expected = outcomes(kind, [*plain(requests), *searches], max_batch=7).texts
    drafter = bare_drafter(pair(kind).head, loaded(kind), choice(kind))
    found = outcomes(kind, [*requests, *searches], drafter=drafter, max_batch=7)
    assert found.texts == expected
    assert found.accepted > 0


def test_searches_run_beside_texts_with_drafts():
    for kind in ("eagle3", "medusa"):
        check_searches(kind)


class Full(OuterDrafter):
    """Runs out of memory at the given calls, before and after what it does."""

    def __init__(self, inner, *numbers):
        super().__init__(inner)
        self._drafter, self._numbers, self._calls = inner, numbers, 0

    def _count(self):
        self._calls += 1
        if self._calls in self._numbers:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def propose(self, asks):
        self._count()
        return self._drafter.propose([replace(ask, most=min(4, ask.most)) for ask in asks])

    def feed(self, parts):
        self._count()
        self._drafter.feed(parts)
        self._count()


def check_full_memory(kind, calls):
    """The numbers of `calls` run out of memory: of them, one call in each run."""
    requests = conditioned("drawn", 4)
    expected = outcomes(kind, plain(requests)).texts
    for numbers in calls:
        drafter = Full(bare_drafter(pair(kind).head, loaded(kind), choice(kind)), *numbers)
        found = outcomes(kind, requests, drafter=drafter)
        assert found.texts == expected, numbers
        assert found.accepted > 0, numbers


def test_memory_that_runs_out_in_a_head_changes_no_text():
    check_full_memory("eagle3", [(2,), (9, 20)])


def test_no_step_runs_ahead_of_one_that_reads_states():
    kind, requests = "medusa", conditioned("drawn", 3)
    drafter = make_drafter(pair(kind).head, loaded(kind), choice(kind))
    expected = {key: ids for key, (ids, *_) in outcomes(kind, plain(requests)).texts.items()}
    on = Engine(loaded(kind).runner, loaded(kind).tokenizer, drafter=drafter, run_ahead=True)
    assert ids_of(events_of(drafted(kind, requests, tokens=None), on=on)) == expected
    assert on.ahead.num_launched == 0
