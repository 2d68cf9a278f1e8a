"""An explained request has the same text, and the same explanations in any company and with drafts."""

import weakref
from dataclasses import replace

from gencli.core.request import Drafting
from processors.chain import Chain
from processors.request_values import Verification
from tests.engine.harness import Scripted, Token, engine, events_of, request

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
