"""Forced text in the tokenizer's tokens."""

from processors.grammar.forced_tokens import CanonicalTokenizer
from processors.testing import ToyVocabulary

TOY = ToyVocabulary()
CANONICAL = CanonicalTokenizer(TOY)


def pieces(tokens):
    return [TOY.token_bytes[token] for token in tokens]


SPELLED = [
    (b"", b"the cat sat.", [b"the", b" cat", b" sat", b"."]),
    (b"", b"th cat", [b"th", b" cat"]),
    (b"", b"th", []),  # it may become "the"
    (b" t", b"he cat", [b"he c", b"at"]),  # behind " t", which is a token already
    (b"", b"", []),
    (b"", b"\xc3", []),  # half of a character
]


def test_forced_text_is_spelled_as_far_as_nothing_can_change_it():
    for before, forced, spelled in SPELLED:
        assert pieces(CANONICAL.tokenize_forced(before, forced)) == spelled, (before, forced)
