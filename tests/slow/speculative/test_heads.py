"""Whole runs with trained draft heads, beside all that meets drafts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gencli import LLM
from gencli.core.request import Drafting, Guidance, LayerContrast, Limits
from gencli.engine.engine import Engine
from gencli.runtime.wiring import make_drafter
from processors.chain import Chain
from processors.verification import Verification
from tests.engine.harness import ends_of, events_of, ids_of
from tests.speculative.agreeing_heads import GGUF, KINDS
from tests.speculative.head_runs import (
    REJECTION,
    choice,
    conditioned,
    drafted,
    loaded,
    outcomes,
    pair,
    plain,
    prompts,
)
from tests.speculative.test_heads import (
    FEW,
    check_chunks,
    check_company,
    check_ends,
    check_full_memory,
    check_searches,
    check_texts,
)

LOSSY = Verification("lossy-typical")
SHARED = tuple(b"A beginning that is long enough to be copied from lane to lane. ")
LONG = tuple(b"It is a long way to the sea, and nobody knows how far it is. " * 20)


@pytest.mark.parametrize("kind", [*KINDS, *GGUF])
def test_a_text_is_the_one_without_drafts_however_many_and_in_any_batch(kind):
    check_texts(kind, [(4, 1), (None, 5), (7, 3)], 2)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_request_decides_a_text_that_drafts_decide(kind):
    for verification in (REJECTION, LOSSY, Verification("lossy-threshold", 0.2)):
        check_chunks(kind, verification, (2, 7, 13))
        check_company(kind, verification, 4)


@pytest.mark.parametrize("kind", FEW)
def test_ends_searches_and_full_memory(kind):
    check_ends(kind)
    check_searches(kind)
    check_full_memory(kind, [(1,), (2,), (3,), (4, 9), (8,), (9, 21), (30,)])


def with_chain(text):
    chain = Chain.parse(text)
    return lambda number, one: replace(one, chain=chain)


def within_a_beginning(number, one):
    return replace(one, prompt_ids=SHARED + one.prompt_ids)


# What changes requests, and options of the engine.
MEETINGS = {
    "several samples": (lambda number, one: replace(one, n=3), {}),
    "several samples in small steps": (lambda number, one: replace(one, n=3), {"step_tokens": 16}),
    "the best of several": (lambda number, one: replace(one, best_of=3), {}),
    "layers contrasted": (lambda number, one: replace(one, dola=LayerContrast("low")), {}),
    "each in its own way": (
        lambda number, one: (
            replace(one, guidance=Guidance(2.0)),
            replace(one, dola=LayerContrast("high")),
            one,
        )[number % 3],
        {},
    ),
    "a long companion in small steps": (
        lambda number, one: replace(one, guidance=Guidance(1.5, negative=LONG[:150])),
        {"step_tokens": 20},
    ),
    "bans that take back": (
        with_chain('ban:texts=["e", "an", "the", "o"],rewind=true | temperature=0.8'),
        {},
    ),
    "forced text": (with_chain('force:text=" So it is",at=tokens,after_tokens=4'), {}),
    "mirostat": (with_chain("mirostat:version=2,tau=3,eta=0.3"), {}),
    "a known beginning": (lambda number, one: replace(one, prefix=tuple(b"known")), {"step_tokens": 12}),
    "a given output beside": (
        lambda number, one: replace(one, given=tuple(b"known"), logprobs=1) if number == 1 else one,
        {"step_tokens": 12},
    ),
    "scored prompts": (lambda number, one: replace(one, prompt_logprobs=1), {"step_tokens": 12}),
    "sessions": (
        lambda number, one: replace(within_a_beginning(number, one), session=str(number % 2)),
        {"max_batch": 2},
    ),
    "a prefix in the cache": (within_a_beginning, {"max_batch": 2}),
    "nothing shared": (within_a_beginning, {"share_prefixes": False}),
    "salts": (
        lambda number, one: replace(within_a_beginning(number, one), salt="s" * (number % 3)),
        {"max_batch": 3},
    ),
    "priorities": (lambda number, one: replace(one, priority=-number), {"max_batch": 2}),
    "steps ahead": (lambda number, one: one, {"run_ahead": True}),
    "long prompts": (
        lambda number, one: replace(one, prompt_ids=LONG[: 200 + 90 * number] + one.prompt_ids),
        {"step_tokens": 64},
    ),
    "long outputs": (
        lambda number, one: replace(
            one, chain=Chain.parse("temperature=0 | ignore_eos=true"), limits=Limits(max_tokens=280)
        ),
        {},
    ),
    "the end of the context": (
        lambda number, one: replace(one, prompt_ids=LONG[: 1012 - number], limits=Limits(max_tokens=60)),
        {},
    ),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_what_meets_drafts_changes_no_text(name):
    change, options = MEETINGS[name]
    for kind in FEW:
        requests = [change(number, one) for number, one in enumerate(conditioned("drawn", 4))]
        expected = outcomes(kind, plain(requests), **options).texts
        every = outcomes(kind, drafted(kind, requests), **options)
        assert every.texts == expected, kind
        assert every.accepted > 0, kind
        mixed = [
            pair[number % 2]
            for number, pair in enumerate(zip(plain(requests), drafted(kind, requests), strict=True))
        ]
        assert outcomes(kind, mixed, **options).texts == expected, kind


@pytest.mark.parametrize("kind", FEW)
def test_what_is_told_of_tokens_is_the_same(kind):
    """Log-probabilities, explanations, and scores of the prompt."""
    requests = [replace(one, logprobs=3, trace=2, prompt_logprobs=2) for one in conditioned("drawn", 3)]

    def told(requests):
        model = loaded(kind)
        drafter = make_drafter(pair(kind).head, model, choice(kind))
        events = events_of(requests, on=Engine(model.runner, model.tokenizer, drafter=drafter))
        entries, views, scores = {}, {}, {}
        for event in events:
            if hasattr(event, "views"):
                entries.setdefault(event.request, []).extend(event.logprobs)
                views.setdefault(event.request, []).extend(event.views)
            elif hasattr(event, "scores"):
                scores[event.request] = event.scores
        return entries, views, scores

    (entries, views, scores), others = told(drafted(kind, requests)), told(plain(requests))
    assert entries.keys() == views.keys() == scores.keys() == {one.id for one in requests}
    assert scores == others[2]
    for name in entries:
        assert len(entries[name]) == len(views[name]) == len(others[1][name]) > 1
        for mine, theirs in zip(entries[name], others[0][name], strict=True):
            assert (mine.chosen.id, mine.rank) == (theirs.chosen.id, theirs.rank)
            assert [each.id for each in mine.top] == [each.id for each in theirs.top]
            assert mine.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=1e-4)
            assert mine.chosen.processed == pytest.approx(theirs.chosen.processed, abs=1e-4)
        for mine, theirs in zip(views[name], others[1][name], strict=True):
            assert (mine.token, mine.raw.rank, mine.decided_by) == (
                theirs.token,
                theirs.raw.rank,
                theirs.decided_by,
            )


@pytest.mark.parametrize("kind", FEW)
def test_an_interrupted_run_leaves_nothing_to_the_next_one(kind):
    """Also an engine of its own after it, as a chat has, whose drafter has dropped its state."""
    requests = conditioned("drawn", 4)
    expected = outcomes(kind, plain(requests)).texts
    drafter = make_drafter(pair(kind).head, loaded(kind), choice(kind))
    on = Engine(loaded(kind).runner, loaded(kind).tokenizer, drafter=drafter)
    for one in drafted(kind, requests):
        on.submit(one)
    events = []
    for event in on.run():
        events.append(event)
        if len(events) == 20:
            on.interrupt()
    assert {end.reason for end in ends_of(events).values()} == {"interrupted"}
    assert all(ids == expected[key][0][: len(ids)] for key, ids in ids_of(events).items())
    assert outcomes(kind, drafted(kind, requests), drafter=drafter).texts == expected
    drafter.trim()
    assert outcomes(kind, drafted(kind, requests)[::-1], drafter=drafter).texts == expected


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "transformers", "dtype": "float32"},
        {"quantize": "int8", "dtype": "float32"},
        {"quantize": "int4", "dtype": "float32"},
        {"dtype": "float16"},
        {"dtype": "float32", "kv_dtype": "int8"},
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_each_format_of_the_model_keeps_its_texts(options):
    texts = [text for text, _ in zip(prompts(), range(3), strict=False)]
    for kind in ("eagle1", *FEW):
        head, found = pair(kind).head, []
        with LLM(pair(kind).model, draft=head, max_batch=3, **options) as llm:
            for draft in ({"draft": "none"}, {"draft": head, "draft_tokens": 4}):
                done = llm.generate(texts, max_tokens=20, temperature=0.7, seed=5, n=2, **draft)
                found.append([[sample.token_ids for sample in each.samples] for each in done])
        assert found[0] == found[1], kind


def test_weights_that_a_drafter_may_use_are_no_leftovers():
    for kind in ("mtp qwen", "mtp mimo", "mtp deepseek of two layers"):
        with LLM(pair(kind).model, dtype="float32") as llm:
            assert llm.notices == (), kind
