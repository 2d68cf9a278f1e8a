"""A grammar of each back end beside everything else that decides about tokens: both keep their word."""

from dataclasses import replace

from gencli.core.request import Stops
from tests.engine.harness import TOKENIZER, Scripted
from tests.slow.engine.test_grammar_beside import BACKENDS, CUTS, PENALTIES, constrained, end_of, outcome

BESIDE = (*PENALTIES, *CUTS, "min_tokens=90", "ignore_eos=true", "temperature=2 | frequency=1 | min_p=0.01")


@BACKENDS
def test_drafts_change_nothing_whatever_stands_beside_the_grammar(backend):
    for chain in BESIDE:
        stops = Stops(strings=("}", "a"), ids=(ord("!"),))
        one = constrained(backend, chain=chain, stops=stops, jump="off")
        plain = end_of(one)
        drafter = Scripted({one.prompt_ids: tuple(TOKENIZER.encode(plain.text))})
        assert outcome(end_of(one, drafter=drafter)) == outcome(plain), chain
        assert outcome(end_of(replace(one, jump="auto"))) == outcome(plain), chain
        assert drafter.proposed > 10, chain
