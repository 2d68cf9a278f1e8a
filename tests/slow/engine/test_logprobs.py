"""Log-probabilities of outputs, prompts and given texts, and explanations of tokens."""

import math
import random
import weakref
from dataclasses import replace

import pytest

from gencli.core.events import Finish, PromptScores, Token
from gencli.core.request import Beams, Drafting, Guidance
from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.request_values import Verification
from tests.engine.harness import Scripted, engine, events_of, ids_of, request
from tests.engine.test_guidance import Remembering
from tests.engine.test_logprobs import (
    GRAMMAR,
    LONG,
    again,
    assert_close,
    assert_scored,
    bans,
    run,
    scored,
    tokens_of,
)
from tests.slow.engine.test_engine import random_chain


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


CHAINS = {
    "none": "",
    "penalties": "repetition=1.4 | frequency=0.5 | temperature=1.5",
    "truncation": "temperature=0.8 | top_k=20 | min_p=0.02",
    "bans": 'ban=["ab"] | bias=[[101,5.0]] | min_tokens=20',
    "grammar": GRAMMAR,
    "mirostat": "temperature=1.5 | mirostat:version=2,tau=3,eta=0.5",
    "adaptive": "min_p=0.01 | adaptive_p:target=0.3,decay=0.5",
}


def test_a_generated_text_has_its_numbers_again():
    cold = Guidance(2.0, tuple(b"cold"))
    for name, guidance in [*((name, Guidance()) for name in CHAINS), ("mirostat", cold), ("grammar", cold)]:
        wanted = request("Hello", chain=CHAINS[name], guidance=guidance, logprobs=3, max_tokens=24)
        ((ids, entries),) = tokens_of([wanted]).values()
        assert len(ids) > 1, (guidance, name)
        assert_close(again(wanted, ids), entries)
        assert_close(again(wanted, ids, step_tokens=5), entries)


PHASES = {spec.name: spec.phase for spec in BUILTIN}


def runner(lanes=1):
    return FakeRunner(vocab_size=300, max_lanes=lanes)


def without(one, plans):
    """The ids of copies of a request, each without some stages at one position; they run side by side."""
    on = engine(runner=runner(len(plans)), max_batch=len(plans))
    plain = on.pipeline._run

    def run(call, logits, rows):
        after, positions = plain(call, logits.clone(), rows), rows.positions.tolist()
        for place in range(len(rows)) if call.places is None else call.places:
            stages, position = plans[rows.host_slots[place]]
            if call.stage in stages and positions[place] == position:
                after[place] = logits[place]
        return after

    setattr(on.pipeline, "_run", run)  # noqa: B010 - as processors.pipeline.trace does
    on.pipeline.is_traced = True
    found = [[] for _ in plans]
    for number in range(len(plans)):
        on.submit(replace(one, id=str(number)))
    for event in on.run():
        if isinstance(event, Token):
            number = int(event.request)
            found[number].extend(event.ids)
            if len(found[number]) > plans[number][1]:
                on.cancel(event.request)  # nobody reads further
    return found


def traced(rng):
    """A request with a random chain, and the explanations of its tokens."""
    while True:
        one = request(
            "the cat sat", key=rng.randrange(1 << 30), chain=random_chain(rng), max_tokens=rng.randint(3, 12)
        )
        one = replace(one, jump="off", draw=rng.choice(("gumbel", "multinomial", "greedy")))
        names = {name for name, _ in one.chain.active()}
        if any(getattr(params, "rewind", False) for _, params in one.chain):
            continue  # what is taken back was chosen in another step
        try:
            events = events_of([replace(one, trace=4)], runner=runner())
        except ProcessorsError:
            continue
        views = [view for event in events if isinstance(event, Token) for view in event.views]
        if views and names:
            return one, [*ids_of(events)[one.id, 0]], views


def check(seed, tokens=250):
    rng, count, decided, forgone = random.Random(seed), 0, 0, 0
    while count < tokens:
        one, ids, views = traced(rng)
        assert [view.token for view in views] == ids, seed
        cuts = frozenset(name for name, _ in one.chain if PHASES[name] >= Phase.TRUNCATE)
        plans = [
            (stages, at)
            for at, view in enumerate(views)
            for stages in (cuts, *({stage.name} for stage in view.stages))
        ]
        others = iter(without(one, plans))
        for at, view in enumerate(views):
            check_sums(view)
            uncut, *alone = [next(others)[at : at + 1] for _ in range(1 + len(view.stages))]
            for stage, other in zip(view.stages, alone, strict=True):
                case = str(one.chain), at, stage.name
                assert (stage.name in view.decided_by) == (other != [view.token]), case
            if view.forgone is not None:
                assert [view.forgone.id] == uncut != [view.token], seed
                assert view.forgone.removed_by in {stage.name for stage in view.stages if stage.acted}, seed
            decided, forgone = decided + len(view.decided_by), forgone + (view.forgone is not None)
        count += len(views)
    assert decided > tokens / 5, seed
    assert forgone > tokens / 20, seed


def test_a_stage_decided_a_token_if_the_engine_chooses_another_without_it():
    check(0, tokens=80)


def check_sums(view):
    """What is kept and removed, and what is listed and left out, is one together."""
    alive = view.raw.alive
    for stage in view.stages:
        assert math.fsum(p for _, p in stage.after.top) + stage.after.others == pytest.approx(1, abs=1e-9)
        assert stage.mass_kept + math.fsum(p for _, p in stage.removed) <= 1 + 1e-9
        if stage.alive[0] - stage.alive[1] <= 4:
            assert stage.mass_kept + math.fsum(p for _, p in stage.removed) == pytest.approx(1, abs=1e-9)
        assert stage.alive[0] == alive
        alive = stage.after.alive
    assert view.final == (view.stages[-1].after if view.stages else view.raw)


CHAIN = "repetition=1.3 | temperature=1.2 | top_k=20 | top_p=0.8"


def views(requests, **options):
    """Explanations and ids of each request."""
    found = {one.id: ([], []) for one in requests}
    for event in events_of(requests, **options):
        if isinstance(event, Token):
            found[event.request][0].extend(event.views)
            found[event.request][1].extend(event.ids)
    return found


def asked(text="the cat sat", **options):
    return request(text, chain=CHAIN, trace=3, max_tokens=20, **options)


def test_each_token_has_its_explanation_and_the_text_is_that_without():
    one = asked()
    explained, ids = views([one])[one.id]
    assert [view.token for view in explained] == ids
    assert views([replace(one, trace=None)])[one.id] == ([], ids)
    assert [stage.name for stage in explained[0].stages] == ["repetition", "temperature", "top_k", "top_p"]


def test_a_choice_under_a_grammar_names_the_mask_and_one_among_texts_explains_the_chosen_one():
    grammar = 'grammar:kind=choice,text="[\\"yes\\",\\"no\\"]",backend=trie'
    one = request("abc", chain=grammar, trace=2, max_tokens=8, jump="off")
    first = views([one])[one.id][0][0]
    assert (first.stages[0].name, first.stages[0].alive[1]) == ("grammar", 2)
    assert first.decided_by == ("grammar",)
    one = replace(asked(), best_of=3)
    explained, ids = views([one])[one.id]
    assert [view.token for view in explained] == ids != []


def test_explanations_are_not_held_behind_their_events():
    on, seen, most = engine(), [], 0
    on.submit(replace(asked(), keep_logits=300))
    for event in on.run():
        seen += [weakref.ref(view.kept.values) for view in event.views] if isinstance(event, Token) else []
        most = max(most, sum(one() is not None for one in seen))
    assert len(seen) == 20
    assert most <= 2


def test_a_text_that_is_given_has_the_explanations_of_its_own_run():
    for chain in (CHAIN, "mirostat:version=2,tau=3", "dry=0.8 | temperature=1.5"):
        one = replace(asked(), chain=Chain.parse(chain), keep_logits=300)
        explained, ids = views([one])[one.id]
        again, same = views([replace(one, given=tuple(ids))])[one.id]
        assert same == ids, chain
        for first, other in zip(again, explained, strict=True):
            assert replace(first, kept=None) == replace(other, kept=None), chain
            assert first.kept.values.equal(other.kept.values), chain


def test_a_draft_that_was_not_drawn_is_behind_what_the_draw_gives():
    for verify in ("rejection", "lossy-typical"):
        one = asked(jump="off")
        answer = tuple(views([one])[one.id][1])
        other = replace(one, seed=7, drafting=Drafting(verification=Verification(verify)))
        explained, ids = views([other], drafter=Scripted({one.prompt_ids: answer}))[one.id]
        assert [view.token for view in explained] == ids, verify
        undrawn = [view for view in explained if view.race.margin is not None and view.race.margin < 0]
        assert undrawn, verify
        assert all(view.decided_by == () and view.forgone is None for view in undrawn), verify
        assert all(view.race.runner_up != view.token for view in undrawn), verify


def test_stages_that_follow_the_tokens_are_not_disturbed():
    for chain in (
        "mirostat:version=2,tau=3",
        "top_k=30 | adaptive_p=0.3",
        "dry=0.8 | temperature=1.5 | xtc:probability=0.5,threshold=0.05",
        'temperature=1.5 | temperature:temperature=0,when={"from": 5, "to": 9}',
        'ban:texts=["e"],rewind=true | top_p=0.9',
    ):
        one = request("the cat sat on the mat", chain=chain, max_tokens=20)
        ids = views([one])[one.id][1]
        traced = replace(one, trace=2)
        explained, found = views([traced])[one.id]
        assert found == ids == [view.token for view in explained], chain
        drafter = Scripted({one.prompt_ids: tuple(ids)})
        assert views([traced], drafter=drafter)[one.id] == (explained, ids), chain
