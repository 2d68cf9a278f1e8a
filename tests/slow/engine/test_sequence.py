"""Outputs that begin with given tokens, and prefixes that requests share."""

from dataclasses import replace

from tests.engine.harness import Scripted, request, texts
from tests.engine.test_guidance import Remembering
from tests.engine.test_sequence import told


def test_drafts_and_company_change_nothing():
    one = request("Hello", chain="frequency=0.5 | temperature=1.2", max_tokens=40)
    ids, end = told(one)
    drafter = Scripted({one.prompt_ids: ids})
    for size in (1, 7, 30):
        part = replace(one, prefix=ids[:size])
        assert told(part, drafter=drafter)[1].text == end.text
        beside = [request(text, max_tokens=9) for text in ("one", "two", "three")]
        alone = texts(beside, runner=Remembering())
        mixed = texts([*beside[:2], part, beside[2]], runner=Remembering(), max_batch=3, step_tokens=7)
        assert mixed == alone | {("Hello", 0): end.text}
    assert drafter.proposed
