"""Which chosen tokens a ban with rewind holds, takes back or lets go."""

import pytest

from processors.base import Settled
from processors.errors import ParamError
from processors.request_values import Automaton
from processors.stages.masks import MOST_HELD, MOST_REWINDS, BanParams, Rewinder

WORDS = (b"", b"the ", b" voice", b"ce bare", b"barely", b"ly", b" a", b"bare")
THE, VOICE, CE_BARE, BARELY, LY, A, BARE = range(1, 8)


def rewinder(*texts):
    return Rewinder(Automaton([text.encode() for text in texts]), WORDS)


def test_tokens_are_held_while_a_text_may_come_of_them():
    one = rewinder("voice bare")
    assert one.settle([THE], is_final=False) == Settled(1)
    one.read([THE])
    assert one.settle([VOICE], is_final=False) == Settled(0, 1)
    assert one.settle([VOICE, A], is_final=False) == Settled(2)
    assert one.settle([VOICE], is_final=True) == Settled(1)


def test_a_complete_text_goes_back_to_the_token_where_it_began_and_bans_add_up():
    one = rewinder("e voice")
    assert one.settle([A, THE], is_final=False) == Settled(1, 1)
    one = rewinder("ce bare", "bare")
    assert one.settle([A, VOICE, 0, CE_BARE, LY], is_final=False) == Settled(1, 2, is_whole=False)
    assert one.banned(3) == {CE_BARE}
    one.read([A])
    assert one.banned(2) == {CE_BARE}
    assert one.settle([VOICE, 0, BARE], is_final=False).held == 2
    assert one.banned(2) == {CE_BARE, BARE}
    other = one.fork()
    other.read([VOICE, 0, A])
    assert (other.has_bans, one.has_bans) == (False, True)


def test_bans_behind_the_place_are_dropped():
    one = rewinder("the  voice", "voicely")
    assert one.settle([THE, VOICE], is_final=False) == Settled(0, 0, is_whole=False)
    assert one.settle([VOICE, LY], is_final=False) == Settled(0, 0, is_whole=False)
    assert one.banned(0) == {THE, VOICE}
    assert not one.banned(1)


def test_texts_are_masked_after_many_ways_back_until_a_token_is_certain():
    one = rewinder("ly")
    for _ in range(MOST_REWINDS):
        assert not one.is_masking
        one.settle([LY], is_final=False)
    assert one.is_masking
    assert one.settle([A, THE], is_final=False) == Settled(1, 0, is_whole=False)
    assert not one.is_masking


def test_no_more_is_held_than_a_step_can_feed():
    one = rewinder("voice bare")
    found = one.settle([VOICE, *[0] * (2 * MOST_HELD)], is_final=False)
    assert found.held == MOST_HELD


def test_a_text_may_begin_in_the_prompt():
    one = rewinder("voice barely")
    one.read_prompt([THE, VOICE])
    assert one.settle([A, BARELY], is_final=False) == Settled(2)
    one = rewinder("voicely")
    one.read_prompt([THE, VOICE])
    assert one.settle([LY], is_final=False) == Settled(0, 0, is_whole=False)
    assert one.banned(0) == {LY}


def test_a_long_text_is_refused():
    with pytest.raises(ParamError, match="with rewind the limit is 256"):
        BanParams(("a" * 257,), rewind=True)
