"""Near the limit one token of each kind is tried: the same go as if each were tried, in fewer tries."""

import json

import pytest
import torch

from processors.base import Env
from processors.grammar.backend import Ask, load_backend
from processors.grammar.bits import allowed_ids
from processors.grammar.canonical import Speller
from processors.grammar.closing import Closer
from processors.grammar.constraint import Constraint
from tests.processors.grammar.kit import Words

# What code and markup bring into large vocabularies: a string may hold most of it.
CODE = tuple(f"{sign}w{number}".encode() for sign in ("{", "],", "[:", "}{,") for number in range(100))
CROSSING = (b'",', b'", "', b'"}', b'a"}', b'\\"', b"\\u", b'a", "b', b'{"', b"\xc3\xa9", b"\xe6\x97")
WORDS = Words((*(bytes([byte]) for byte in range(256)), *CODE, *CROSSING))
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


class Counted:
    """A matcher that counts what it is tried with."""

    def __init__(self, matcher):
        self.matcher, self.tries = matcher, 0

    def __getattr__(self, name):
        return getattr(self.matcher, name)

    def accept(self, token):
        self.tries += 1
        return self.matcher.accept(token)


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("begun", ['{"a":"', '{"a":"some text', '{"a":"", "b":["x"', '{"a":'], ids=str)
def test_what_goes_is_what_would_go_if_each_token_were_tried(name, begun):
    env = Env(len(WORDS.token_bytes) + 1, WORDS)
    backend, closer = load_backend(name, env), Closer(Speller(WORDS), env.width)
    grammar = backend.compile(Constraint("json_schema", json.dumps(SCHEMA), name, 1))
    matcher, text = Counted(grammar.matcher()), begun.encode()
    assert all(map(matcher.accept, text))
    mask = torch.zeros(1, -(-env.width // 32), dtype=torch.int32)
    backend.fill([Ask(matcher.matcher, (), 0)], mask)
    legal = allowed_ids(mask[0], len(WORDS.token_bytes)).tolist()
    path = closer.path(matcher, text, 64, is_json=True)
    for left in range(len(path), len(path) + 4):
        narrowed, before = mask[0].clone(), matcher.tries
        closer.narrow(narrowed, matcher, text, left, is_json=True)
        between = matcher.tries
        fits = [one for one in legal if one == path[0] or fits_alone(closer, matcher, text, one, left)]
        assert allowed_ids(narrowed, len(WORDS.token_bytes)).tolist() == fits
        if len(legal) > len(CODE):
            assert 3 * (between - before) < matcher.tries - between


def fits_alone(closer, matcher, text, token, left):
    assert matcher.accept(token)
    found = closer.path(matcher, closer.speller.join(text, token), left - 1, is_json=True)
    matcher.rollback(1)
    return found is not None
