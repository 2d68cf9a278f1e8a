"""Texts that stages write: the same alone and in company, with drafts and samples, in fewer passes."""

from dataclasses import replace
from itertools import product

from tests.engine.harness import Scripted, generate, request
from tests.engine.test_drafts import Counting, generated
from tests.engine.test_forcing import FORCED

AT_END = 'force:text="-fin-",at=end'


CHAINS = (FORCED, AT_END, f"{FORCED} | repetition=1.3 | temperature=0.8")


def test_a_text_in_company_and_with_drafts_is_that_of_a_request_alone():
    for chain, jump in product(CHAINS, ("auto", "off")):
        many = [request(f"text {n}", chain=chain, max_tokens=30, jump=jump) for n in range(5)]
        alone = {one.id: generated(replace(one, jump="off"))[:2] for one in many}
        others = [request(f"other {n}", max_tokens=20) for n in range(4)]
        together = generate([*many, *others], runner=Counting(), max_batch=3)
        for one in many:
            text, ids = alone[one.id]
            assert together[one.id, 0].text == text, (chain, jump)
            assert generated(one, Scripted({one.prompt_ids: ids}))[:2] == (text, ids), (chain, jump)
        texts = [text for text, _ in alone.values()]
        assert sum("So the answer is" in text or "-fin-" in text for text in texts) >= 4, (chain, jump)
