"""Texts that stages write: the same alone and in company, with drafts and samples, in fewer passes."""

import json
from dataclasses import replace

from gencli.core.request import Drafting
from gencli.speculative.drafter import Drafter
from processors.catalog import GrammarParams
from tests.engine.harness import generate, request
from tests.engine.test_drafts import generated

FORCED = 'force:text=" So the answer is: ",at=tokens,after_tokens=4'


BUDGET = 'reasoning_budget:tokens=6,start="<t>",end="</t>",message="(enough)"'


def test_forced_text_is_verified_in_one_pass_and_samples_share_it():
    one = request("a", chain=FORCED, max_tokens=40)
    text, ids, passes = generated(one)
    assert (text, ids) == generated(replace(one, jump="off"))[:2]
    assert passes <= 40 - len(" So the answer is: ") + 2
    ruled = replace(one, drafting=Drafting("none"))
    assert generated(ruled)[:2] == (text, ids)
    texts = {end.text for end in generate([replace(one, n=3)]).values()}
    assert len(texts) == 3
    assert all(text[4:].startswith(" So the answer is: ") for text in texts)


def test_the_result_begins_behind_thinking_that_was_cut():
    for prompt in ("think: <t>", "think: <t>\n"):
        grammar = GrammarParams(json.dumps(["yes", "no"]), kind="choice", backend="trie", after="</t>")
        one = request(prompt, chain=BUDGET, max_tokens=40)
        one = replace(one, chain=replace(one.chain, stages=(*one.chain.stages, ("grammar", grammar))))
        text = generated(one)[0]
        thought, _, answer = text.partition("</t>")
        assert thought.endswith("(enough)"), prompt
        assert answer in ("yes", "no"), prompt
        assert generated(replace(one, jump="off"))[0] == text, prompt
        assert generated(one, Wrong())[0] == text, prompt


class Wrong(Drafter):
    """Proposes what is never there."""

    def propose(self, asks):
        return [(0, 1, 2)[: ask.most] for ask in asks]
