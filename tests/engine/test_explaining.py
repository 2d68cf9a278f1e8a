"""An explained request has the same text, and the same explanations in any company and with drafts."""

import weakref
from dataclasses import replace

from tests.engine.harness import Token, engine, events_of, request

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
