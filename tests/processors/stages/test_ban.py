"""Bans by text, entry 38: the text never appears, and nothing else is masked."""

import pytest
import torch

from processors.base import Admission, Env
from processors.errors import ParamError, TokenError
from processors.history import History
from processors.rows import Rows
from processors.stages.masks import BAN_LIMIT, Ban, BanParams


def forbidden(vocabulary, texts, before):
    """Tokens that are masked after this text, as bytes."""
    stage = Ban(Env(vocabulary.vocab_size, vocabulary))
    history = History()
    tokens = vocabulary.encode(before)
    history.admit(0, tokens)
    stage.admit(0, BanParams(texts), Admission(tuple(tokens)))
    out = stage.apply(torch.zeros(1, vocabulary.vocab_size), Rows.build(history, [0]))[0]
    return {vocabulary.token_bytes[token] for token in (out == -torch.inf).nonzero().squeeze(1).tolist()}


def test_tokens_that_complete_the_text_are_masked(vocabulary):
    for before, banned in [
        ("", {b"cat", b" cat"}),
        ("the c", {b"at", b"cat", b" cat"}),
        ("concat", {b"cat", b" cat"}),
        ("ca", {b"cat", b" cat", b"t", b"th", b"the"}),
    ]:
        assert forbidden(vocabulary, ("cat",), before) == banned, before


def test_a_special_token_does_not_interrupt_a_text(vocabulary):
    stage = Ban(Env(vocabulary.vocab_size, vocabulary))
    history = History()
    history.admit(0, [*vocabulary.encode("ca"), *[2] * 50])
    stage.admit(0, BanParams(("cat",)), Admission())
    out = stage.apply(torch.zeros(1, vocabulary.vocab_size), Rows.build(history, [0]))[0]
    assert out[vocabulary.encode("t", special=False)[0]] == -torch.inf


def test_every_token_with_the_character_is_masked(vocabulary):
    assert forbidden(vocabulary, ("\n",), "a") == {b"\n", b"\n\n"}


def test_a_character_is_found_through_its_pieces(vocabulary):
    whole = {"😀".encode(), " 😀".encode()}
    assert forbidden(vocabulary, ("😀",), "a") == whole
    stage = Ban(Env(vocabulary.vocab_size, vocabulary))
    history = History()
    history.admit(0, [vocabulary.token_bytes.index(b"\xf0\x9f")])
    stage.admit(0, BanParams(("😀",)), Admission())
    out = stage.apply(torch.zeros(1, vocabulary.vocab_size), Rows.build(history, [0]))[0]
    assert out[vocabulary.token_bytes.index(b"\x98\x80")] == -torch.inf
    assert out[vocabulary.token_bytes.index(b"\x98")] == 0


def test_a_text_inside_a_longer_one_is_found(vocabulary):
    assert b"h" in forbidden(vocabulary, ("xaby", "ah"), "xa")


def test_the_model_may_have_fewer_or_more_ids_than_the_tokenizer(kept, vocabulary):
    for width in [9, 300]:
        left = kept("ban", {"texts": ["cat", "z"]}, [0.0] * width, prompt=(250,), vocabulary=vocabulary)
        banned = [i for i, data in enumerate(vocabulary.token_bytes) if b"cat" in data or b"z" in data]
        assert left == [token for token in range(width) if token not in banned], width


def test_without_a_tokenizer_a_ban_is_refused():
    with pytest.raises(TokenError, match="no tokenizer"):
        Ban(Env(4)).admit(0, BanParams(("a",)), Admission())


def test_hostile_amounts_of_text_are_refused():
    with pytest.raises(ParamError, match=str(BAN_LIMIT)):
        BanParams(("a" * (BAN_LIMIT + 1),))


def test_case_may_not_matter(kept, vocabulary):
    width, ids = vocabulary.vocab_size, vocabulary.encode
    (capital,) = ids("C", special=False)
    left = kept(
        "ban", {"texts": ("The Ca", "É"), "ignore_case": True}, [0.0] * width,
        prompt=ids("x", special=False), output=(*ids(" the ", special=False), capital), vocabulary=vocabulary,
    )  # fmt: skip
    banned = {vocabulary.token_bytes[token] for token in set(range(width)) - set(left)}
    assert {b"a", b"A", b"aa", b"at", "é".encode(), "éa".encode()} <= banned
    assert b"c" not in banned
