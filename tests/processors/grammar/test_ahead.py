"""What comes next in a document whose white space is not decided yet: a good guess, and always legal."""

import json

import pytest

from processors.base import Env
from processors.grammar.ahead import look_ahead
from processors.grammar.backend import load_backend
from processors.grammar.canonical import Speller
from processors.grammar.constraint import Constraint
from processors.testing import ToyVocabulary

TOY = ToyVocabulary()
ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)
SCHEMA = {
    "type": "object",
    "properties": {key: {"type": "boolean"} for key in ("a", "b", "c")} | {"d": {"type": "string"}},
    "required": ["a", "b", "c", "d"],
    "additionalProperties": False,
}


def ahead(backend, begun, whitespace=8):
    constraint = Constraint("json_schema", json.dumps(SCHEMA), backend, whitespace)
    matcher = load_backend(backend, ENV).compile(constraint).matcher()
    assert all(map(matcher.accept, TOY.encode(begun, special=False)))
    found = look_ahead(matcher, Speller(TOY), begun.encode(), is_json=True)
    assert all(map(matcher.accept, TOY.encode(found.decode(), special=False)))
    return found.decode()


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(
    ("begun", "next_one"),
    [
        ("", '{"a": '),
        ("{", '"a": '),
        ('{"a": t', 'rue, "b": '),
        ('{"a": true,', ' "b": '),
        ('{"a":true,', ' "b":'),  # no space after the colon, as before
        ('{"a":\n\ttrue,\n', '"b":\n\t'),
        ('{"a": true,\n  "b": true,', '\n  "c": '),
        ('{"a": true,\n  "b": true,\n', '  "c": '),
        ('{"a":   true, "b":', '   '),  # three, as before
        ('{"a": true,   ', ' ' * 5 + '"b": '),  # a run goes on, as far as the cap lets it
        ('{"a": true,\n\n', '\n' * 6 + '"b": '),
        ('{"a": true, \n', '"b": '),  # a mixture does not
        ('{"a": true, "b": true, "c": true, "d": "a', ''),
        ('{"a": true, "b": true, "c": true, "d": "a"', '}'),
    ],
)  # fmt: skip
def test_white_space_is_as_before_or_as_usual(backend, begun, next_one):
    assert ahead(backend, begun) == next_one


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_without_white_space_nothing_is_guessed(backend):
    assert ahead(backend, '{"a":true,', whitespace=0) == '"b":'
