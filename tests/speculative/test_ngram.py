"""Prompt lookup: the longest n-gram, its latest place, and on from there."""

from gencli.core.request import Drafting, Request
from gencli.speculative.drafter import DraftAsk, NgramDrafter, Text


def drafter(least=0.0):
    made = NgramDrafter()
    made.admit(0, Request("k", (1,), drafting=Drafting(min_p=least)))
    return made


def drafted(text, most=8, least=0.0):
    return drafter(least).propose([DraftAsk(0, tuple(text), most)])[0]


def test_what_followed_the_last_tokens_is_the_draft():
    for text, run in (
        ([1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3, 4, 1, 2]),  # and on in itself
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2, 4, 1, 2, 4, 1]),  # the latest place
        ([9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], [3, 8, 1, 2, 4, 9, 1, 2]),  # the longest match
        ([1, 2, 3], []),
        ([1, 2, 1], []),  # one token is no n-gram
        ([5], []),
    ):
        assert drafted(text) == run, text
    assert drafted([1, 2, 3, 4, 1, 2], most=1) == [3]


def test_a_draft_that_the_places_do_not_agree_on_is_left_out():
    split = [1, 2, 3, 7, 5, 1, 2, 4, 8, 6, 1, 2, 3, 7, 0, 1, 2]
    assert drafted(split, most=3) == [3, 7, 0]
    assert drafted(split, most=3, least=0.6) == [3, 7]
    assert drafted(split, most=3, least=0.7) == []


def test_growing_token_by_token_finds_what_a_fresh_index_finds():
    text = [(i * i) % 5 for i in range(60)]
    grown = drafter()
    for end in range(1, len(text)):
        ask = DraftAsk(0, Text(text[:3], text[3:end]) if end > 3 else text[:end], 4)
        assert grown.propose([ask])[0] == drafted(text[:end], 4)
