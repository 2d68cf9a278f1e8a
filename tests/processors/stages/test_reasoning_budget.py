"""The stage reasoning_budget: the cases of llama.cpp's tests/test-reasoning-budget.cpp, and more."""

import pytest

from processors.errors import ParamError
from tests.processors.stages.test_force import TOY, Slot


def ids(text):
    return TOY.encode(text, special=False)


A, B, X = ids("a")[0], ids("b")[0], ids("x")[0]
M = ids("m")[0]
TAGS = 'start="a",end="b"'


def test_thinking_ends_after_the_budget():
    for budget, tokens, forced in [
        # a natural end before the budget is used up
        (f"tokens=5,{TAGS}", (A, X, X, B, X, X, X, X), [None] * 8),
        # the budget is used up: message and end
        (f'tokens=2,{TAGS},message="m"', (A, X, X, M, B, X), [None, None, None, M, B, None]),
        # no budget at all: the end comes at once
        (f"tokens=0,{TAGS}", (A, B, X), [None, B, None]),
        # without a start nothing is counted
        (f"tokens=1,{TAGS}", (X, X, X, X), [None] * 4),
        # a new start begins a new count, behind a natural end and behind a forced one
        (f"tokens=2,{TAGS}", (A, B, A, X, X, B, A, X, X, B), [None] * 5 + [B] + [None] * 3 + [B]),
        # inside of thinking a start is a token as any other
        (f"tokens=2,{TAGS}", (A, A, X, B, X), [None, None, None, B, None]),
        # tags of several tokens, cut in other ways
        ('tokens=1,start="xa",end="bb"', (X, A, X, B, B, X), [None, None, None, B, B, None]),
        ('tokens=3,start="xa",end="bx"', (X, A, X, B, X, X, X), [None] * 7),
    ]:
        assert Slot(f"reasoning_budget:{budget}").steps(*tokens) == forced, budget


def test_a_character_is_complete_before_the_end_is_written():
    first, rest = TOY.token_bytes.index(b"\xf0\x9f"), TOY.token_bytes.index(b"\x98\x80")
    slot = Slot(f"reasoning_budget:tokens=1,{TAGS}")
    assert slot.steps(A, first) == [None, None]
    assert 1 not in slot.left()  # the text may not end here
    assert slot.steps(rest, B, X) == [None, B, None]


def test_a_prompt_that_ends_with_the_start_is_inside_of_thinking():
    for prompt, is_open in [("xa", True), ("xa \n", True), ("xab", False), ("ax", False), ("", False)]:
        slot = Slot(f"reasoning_budget:tokens=1,{TAGS}", prompt=tuple(ids(prompt)))
        assert slot.steps(X, B) == [None, B if is_open else None], prompt


def test_an_output_that_begins_inside_needs_no_start_unless_the_prompt_has_ended_it():
    for prompt, is_open in [("", True), ("x", True), ("xb", False), ("xb \n", False), ("bx", True)]:
        slot = Slot(f"reasoning_budget:tokens=1,open=true,{TAGS}", prompt=tuple(ids(prompt)))
        assert slot.steps(X, B) == [None, B if is_open else None], prompt


def test_tags_may_be_special_tokens():
    user = 2  # <|user|>
    slot = Slot('reasoning_budget:tokens=1,start="a",end="b"', prompt=(user, A))
    assert slot.steps(X, B) == [None, B]


def test_rows_of_drafts_follow_the_count():
    slot = Slot(f'reasoning_budget:tokens=2,{TAGS},message="m"')
    left = slot.left(drafts=(A, X, X, M, B, X))
    assert [row[0] if len(row) == 1 else None for row in left] == [None, None, None, M, B, None, None]


def test_empty_tags_are_refused():
    with pytest.raises(ParamError, match="end is empty"):
        Slot('reasoning_budget:tokens=2,end=""')
