"""A grammar in the loop: its end ends the text, and whatever stands beside it keeps it whole."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Stops
from gencli.speculative.base import Drafter
from processors.catalog import FrequencyParams, GrammarParams
from processors.chain import Chain
from tests.engine.harness import Error, Scripted, generate, request

WORDS = ("red", "green", "greenish", "blue and white")


def choice(*texts, after=""):
    return GrammarParams(json.dumps(texts), kind="choice", backend="trie", after=after)


def constrained(*texts, key="k", seed=0, after="", chain="", **rest):
    one = request("pick", key=key, seed=seed, chain=chain, **rest)
    stages = (("grammar", choice(*(texts or WORDS), after=after)), *one.chain.stages)
    return replace(one, chain=Chain(stages))


def end_of(one, **options):
    return generate([one], **options)[one.id, 0]


def test_the_text_is_one_of_the_choices_and_ends_by_itself():
    for seed in range(8):
        end = end_of(constrained(seed=seed))
        assert (end.text in WORDS, end.reason, end.document) == (
            True,
            "grammar",
            "over",
        ) or end.text == "green", seed


def test_a_text_that_may_go_on_ends_with_an_end_of_text_or_goes_on():
    ends = [end_of(constrained("green", "greenish", seed=seed)) for seed in range(12)]
    assert {(end.text, end.reason) for end in ends} == {("green", "eos"), ("greenish", "grammar")}
    assert all(end.document == "over" for end in ends)


def test_a_cut_text_says_that_it_is_open():
    end = end_of(constrained("blue and white", max_tokens=5))
    assert (end.text, end.reason, end.document) == ("blue ", "length", "open")


def test_drafts_change_nothing_but_the_number_of_steps():
    one = constrained("blue and white", "blue and black", jump="off")
    plain = end_of(one)
    drafter = Scripted({one.prompt_ids: tuple(plain.text.encode())})
    drafted = end_of(one, drafter=drafter)
    assert (drafted.text, drafted.reason, drafted.document) == (plain.text, plain.reason, plain.document)
    assert drafter.proposed > 4


@pytest.mark.parametrize("draft", [b"blue", b"greenish!", b"red\x00", b"gr\xff\xff"])
def test_a_draft_that_the_grammar_forbids_is_not_taken(draft):
    class Stubborn(Drafter):
        def propose(self, asks):
            return [tuple(draft)[: ask.most] for ask in asks]

    for seed in range(4):
        one = constrained(seed=seed)
        assert end_of(one, drafter=Stubborn()).text == end_of(one).text


def test_rows_with_and_without_a_grammar_share_a_batch():
    rows = [constrained(key=f"g{i}", seed=i) for i in range(5)]
    rows += [request("free", key=f"f{i}", seed=i) for i in range(5)]
    rows += [constrained("yes", "no", key=f"y{i}", seed=i) for i in range(5)]
    alone = {(row.id, 0): end_of(row).text for row in rows}
    together = generate(rows, max_batch=6)
    assert {key: end.text for key, end in together.items()} == alone


def test_samples_of_one_request_have_states_of_their_own():
    ends = generate([replace(constrained(), n=6)])
    assert {end.text for end in ends.values()} <= set(WORDS)
    assert len({end.text for end in ends.values()}) > 1


def test_a_stop_string_counts_only_behind_a_complete_document():
    inside = constrained("ab}", stops=Stops(strings=("b", "}", "ab")))
    assert (end_of(inside).text, end_of(inside).reason) == ("ab}", "grammar")
    longer = [
        end_of(constrained("ab", "abb", "abbb", seed=seed, stops=Stops(strings=("bb",))))
        for seed in range(24)
    ]
    # "bb" would begin inside "ab" in "abb", and is cut off whole behind it in "abbb".
    assert {(end.text, end.reason) for end in longer} == {("ab", "eos"), ("abb", "eos"), ("ab", "stop")}


def test_a_stop_id_is_legal_only_where_the_document_is_complete():
    stops = Stops(ids=(120,))
    ends = [end_of(constrained("axa", "ay", "aya", seed=seed, stops=stops)) for seed in range(12)]
    assert {(end.text, end.reason) for end in ends} == {("ay", "stop")}  # never "a", cut off at the first x


def test_min_tokens_and_ignore_eos_lengthen_what_may_go_on_and_no_more():
    for chain in ("min_tokens=7", "ignore_eos=true"):
        ends = [end_of(constrained("green", "greenish", seed=s, chain=chain)) for s in range(6)]
        assert {(end.text, end.reason) for end in ends} == {("greenish", "grammar")}
    assert end_of(constrained("no", chain="min_tokens=7 | ignore_eos=true")).reason == "grammar"


def test_tokens_without_a_choice_are_not_penalised():
    heavy = FrequencyParams(50.0)
    # Of each word only the first byte is a choice, and b begins two of them.
    texts = ("bbbb1bbbb2", "bbbb1cbbb2")
    for seed in range(6):
        one = constrained(*texts, seed=seed)
        penalised = replace(one, chain=Chain((*one.chain.stages, ("frequency", heavy))))
        assert end_of(penalised).text == end_of(one).text
        answers = {one.prompt_ids: tuple(texts[0].encode())}
        assert end_of(penalised, drafter=Scripted(answers)).text == end_of(one).text


def test_the_grammar_begins_behind_the_marker():
    one = constrained("yes", "no", after="e", max_tokens=400)
    for drafter in (None, Scripted({one.prompt_ids: tuple(end_of(one).text.encode())})):
        end = end_of(one, drafter=drafter)
        thinking, _, document = end.text.partition("e")
        assert (document in ("yes", "no"), end.reason) == (True, "grammar")
        assert thinking


def test_a_text_does_not_end_before_its_document():
    stops = Stops(ids=tuple(range(32, 127)))
    end = end_of(constrained("yes", after="never this", max_tokens=9, stops=stops))
    assert (end.reason, end.document) == ("length", "free")


def test_without_its_marker_a_text_is_not_begun():
    end = end_of(constrained("yes", after="never this", max_tokens=9))
    assert (end.reason, end.document) == ("length", "free")


def test_a_grammar_that_another_stage_forbids_fails_by_name():
    end = end_of(constrained("red", chain="suppress=[114]"))
    assert isinstance(end, Error)
    assert (end.type, "suppress" in end.message or "grammar" in end.message) == ("EmptySupport", True)
