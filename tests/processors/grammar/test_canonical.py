"""Forced text in the tokenizer's tokens, and short ends of documents."""

import json

import pytest
import torch

from processors.base import Env
from processors.grammar.backend import Ask, load_backend
from processors.grammar.bits import allowed_ids
from processors.grammar.canonical import Speller
from processors.grammar.closing import Closer
from processors.grammar.constraint import Constraint
from processors.testing import ToyVocabulary

TOY = ToyVocabulary()
SPELLER = Speller(TOY)
ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)
CLOSER = Closer(SPELLER, ENV.width)


def pieces(tokens):
    return [TOY.token_bytes[token] for token in tokens]


@pytest.mark.parametrize(
    ("before", "forced", "spelled"),
    [
        (b"", b"the cat sat.", [b"the", b" cat", b" sat", b"."]),
        (b"", b"th cat", [b"th", b" cat"]),
        (b"", b"th", []),  # it may become "the"
        (b" t", b"he cat", [b"he c", b"at"]),  # behind " t", which is a token already
        (b"", b"", []),
        (b"", b"\xc3", []),  # half of a character
    ],
)
def test_forced_text_is_spelled_as_far_as_nothing_can_change_it(before, forced, spelled):
    assert pieces(SPELLER.spell(before, forced)) == spelled


def matcher_of(schema, backend="xgrammar", whitespace=0):
    loaded = load_backend(backend, ENV)
    return loaded.compile(Constraint("json_schema", json.dumps(schema), backend, whitespace)).matcher()


LISTS = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1}},
    "required": ["items"],
}


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(
    "begun", ["", "{", '{"items":["', '{"items":["ab', '{"items":["abc","', '{"items":["ab"]']
)
def test_a_short_end_completes_the_document_and_leaves_the_matcher_alone(backend, begun):
    matcher = matcher_of(LISTS, backend)
    for token in TOY.encode(begun, special=False):
        assert matcher.accept(token)
    path = CLOSER.path(matcher, begun.encode(), 100)
    items = json.loads(begun.encode() + TOY.decode(path))["items"]
    assert items
    assert all(len(item) >= 2 for item in items)
    assert CLOSER.path(matcher, begun.encode(), 100) == path
    assert CLOSER.path(matcher, begun.encode(), len(path) - 1) is None


ENDLESS = [
    {"type": "string", "format": "email"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "pattern": "^[^@]+@[a-z]+[.]com$"},
    {"type": "string", "pattern": "^[0-9.]+Z$"},
    {"type": "object", "additionalProperties": {"type": "object", "minProperties": 1}, "minProperties": 1},
]


@pytest.mark.parametrize("whitespace", [0, 8])
@pytest.mark.parametrize("schema", ENDLESS, ids=str)
@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_a_string_whose_own_expression_need_not_end_is_brought_to_its_end(backend, schema, whitespace):
    matcher, text = matcher_of(schema, backend, whitespace), b""
    path = CLOSER.path(matcher, text, 120, is_json=True)
    assert path
    for index, token in enumerate(path):  # each step leaves one less to do
        assert CLOSER.path(matcher, text, 120, is_json=True) == path[index:]
        matcher.accept(token)
        text = CLOSER.speller.join(text, token)
    assert matcher.is_complete()


def test_only_what_leaves_room_for_the_end_stays():
    matcher = matcher_of(LISTS)
    begun = '{"items":["ab'
    for token in TOY.encode(begun, special=False):
        matcher.accept(token)
    legal = torch.zeros(1, (ENV.width + 31) // 32, dtype=torch.int32)
    load_backend("xgrammar", ENV).fill([Ask(matcher, (), 0)], legal)
    room = len(CLOSER.path(matcher, begun.encode(), 100))
    found = []
    for left in (room - 1, room, room + 1):
        mask = legal[0].clone()
        CLOSER.narrow(mask, matcher, begun.encode(), left, is_json=True)
        found.append(set(allowed_ids(mask, ENV.width).tolist()))
    none, tight, wide = found
    (letter,), (quote,) = TOY.encode("a", special=False), TOY.encode('"', special=False)
    assert none == set(allowed_ids(legal[0], ENV.width).tolist())
    assert (quote in tight, letter in tight, letter in wide) == (True, False, True)
    assert tight <= wide <= none
