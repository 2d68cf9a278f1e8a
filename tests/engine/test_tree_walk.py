"""Trees of drafts change no text, whatever is chosen and whatever else a step does."""

from __future__ import annotations

import pytest

from tests.engine.harness import request
from tests.engine.tree_cases import compared

PROMPTS = ("Once upon a time", "A text", "She said that it was", "x", "There was a king of that land")


def requests(chain="temperature=0.9", count=5, **rest):
    return [
        request(text, key=f"{index}", seed=index, chain=chain, max_tokens=40, **rest)
        for index, text in enumerate(PROMPTS[:count])
    ]


def accepted(ends):
    return sum(sum(end.drafted.accepted) for end in ends.values())


CHAINS = (
    "temperature=0",
    "temperature=0.9",
    "temperature=0.8 | top_p=0.9",
    "repetition=1.3 | frequency=0.4 | presence=0.3 | temperature=0.8",
    "temperature=0.9 | min_p=0.05 | no_repeat_ngram=3",
)


@pytest.mark.parametrize("chain", CHAINS)
def test_texts_are_those_without_drafts(chain):
    for kind, max_batch in (("full", 1), ("full", 5), ("window", 5)):
        _, ends, _ = compared(requests(chain), kind=kind, max_batch=max_batch)
        assert accepted(ends) > 60
        assert sum(end.drafted.nodes for end in ends.values()) > 300
