"""A grammar in the loop: its end ends the text, and whatever stands beside it keeps it whole."""

from dataclasses import replace

from processors.catalog import FrequencyParams
from processors.chain import Chain
from tests.engine.harness import Scripted
from tests.engine.test_grammar import constrained, end_of


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
