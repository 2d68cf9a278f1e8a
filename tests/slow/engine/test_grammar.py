"""A grammar in the loop: its end ends the text, and whatever stands beside it keeps it whole."""

from dataclasses import replace

from processors.catalog import FrequencyParams
from processors.chain import Chain
from tests.engine.harness import Scripted, generate, request
from tests.engine.test_grammar import WORDS, constrained, end_of


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


def test_the_text_is_one_of_the_choices_and_ends_by_itself_or_goes_on():
    for seed in range(8):
        end = end_of(constrained(seed=seed))
        assert (end.text in WORDS, end.document) == (True, "over"), seed
        assert end.reason == ("eos" if end.text == "green" else "grammar"), seed
    ends = [end_of(constrained("green", "greenish", seed=seed)) for seed in range(12)]
    assert {(end.text, end.reason) for end in ends} == {("green", "eos"), ("greenish", "grammar")}
    end = end_of(constrained("blue and white", max_tokens=5))
    assert (end.text, end.reason, end.document) == ("blue ", "length", "open")


def test_rows_with_and_without_a_grammar_and_samples_have_states_of_their_own():
    rows = [constrained(key=f"g{i}", seed=i) for i in range(5)]
    rows += [request("free", key=f"f{i}", seed=i) for i in range(5)]
    rows += [constrained("yes", "no", key=f"y{i}", seed=i) for i in range(5)]
    alone = {(row.id, 0): end_of(row).text for row in rows}
    assert {key: end.text for key, end in generate(rows, max_batch=6).items()} == alone
    texts = {end.text for end in generate([replace(constrained(), n=6)]).values()}
    assert len(texts) > 1
    assert texts <= set(WORDS)
