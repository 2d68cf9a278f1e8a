"""Completions: tokens behind which an open document is complete."""

import json
from itertools import product

from processors.base import Env
from processors.constraint import Constraint
from processors.grammar.backends.base import load_backend
from processors.grammar.state.pattern_samples import samples_of
from processors.grammar.state.work import Work
from processors.testing import ToyVocabulary
from tests.processors.grammar.kit import closer_of, json_spot

TOY = ToyVocabulary()
ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)
BACKENDS = ("xgrammar", "llguidance")
LISTS = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1}},
    "required": ["items"],
}


BEGUN = ("", "{", '{"items":["', '{"items":["ab', '{"items":["abc","', '{"items":["ab"]')


def opened(schema, backend="xgrammar", begun=b"", whitespace=0):
    loaded = load_backend(backend, ENV)
    grammar = loaded.compile(Constraint("json_schema", json.dumps(schema), backend, whitespace))
    closer = closer_of(loaded, ENV)
    spot = json_spot(closer, grammar.matcher(), begun)
    spot.samples = samples_of(Constraint("json_schema", json.dumps(schema), backend))
    return closer, spot


def string(**rest):
    return {"type": "string", **rest}


def test_a_completion_completes_the_document_and_leaves_the_spot_alone():
    for backend, begun in product(BACKENDS, BEGUN):
        closer, spot = opened(LISTS, backend, begun.encode())
        path = closer.find(spot, 100, Work(12_000))
        items = json.loads(begun.encode() + TOY.decode(path))["items"]
        assert items, (backend, begun)
        assert all(len(item) >= 2 for item in items), (backend, begun)
        assert closer.find(spot, 100, Work(12_000)) == path, (backend, begun)
        assert closer.find(spot, len(path) - 1, Work(12_000)) is None, (backend, begun)
        assert spot.text == begun.encode(), (backend, begun)


SHORTEST = [
    (string(format="email"), b'"', 5),
    (string(pattern="^a.*b$"), b'"a and so on', 2),
    (string(pattern="^[a-z]+@[a-z]+[.]com$"), b'"ab@c', 5),
    (string(pattern="^([a-z]{30}@|b)+$"), b'"', 2),
    (string(pattern="^([a-z]{30}@|b)+$"), b'"bab', 30),
    (string(pattern="^.*[.]json$"), b'"some text', 6),
    (string(format="uri"), b'"', 3),
    (string(), b'"some \\', 2),
]


def test_a_string_with_a_pattern_ends_by_the_fewest_bytes():
    for backend, (schema, begun, most) in product(BACKENDS, SHORTEST):
        closer, spot = opened(schema, backend, begun)
        path = closer.find(spot, 400, Work(12_000))
        assert len(path) <= most, (backend, schema, begun)
        assert isinstance(json.loads(begun + TOY.decode(path)), str), (backend, schema, begun)


ENDLESS = [
    string(format="email"),
    string(format="date-time"),
    string(pattern="^[^@]+@[a-z]+[.]com$"),
    string(pattern="^[0-9.]+Z$"),
    {"type": "object", "additionalProperties": {"type": "object", "minProperties": 1}, "minProperties": 1},
]


def test_without_a_search_a_string_that_need_not_end_does():
    for whitespace, schema, backend in product((0, 8), ENDLESS, BACKENDS):
        closer, spot = opened(schema, backend, b"", whitespace)
        path = closer.path(spot, 120, Work(12_000))
        assert path, (whitespace, schema, backend)
        for token in path:
            assert spot.accept(token), (whitespace, schema, backend)
        assert spot.matcher.is_complete(), (whitespace, schema, backend)


def test_the_end_of_a_known_completion_is_taken_where_it_fits():
    closer, spot = opened(string(pattern="^[a-z]+@[a-z]+[.]com$"), begun=b'"so')
    hint = tuple(TOY.encode('@here.com"', special=False))
    assert closer.path(spot, 20, Work(100), hint=hint) == hint
    spot.accept(TOY.encode("@", special=False)[0])
    path = closer.path(spot, 20, Work(100), hint=hint)
    assert path == hint[-len(path) :]
    assert TOY.decode(path) == b'e.com"'


def test_where_the_work_ends_nothing_is_found_and_the_spot_is_left_alone():
    closer, spot = opened(string(pattern="^[a-z]{30}@x$"), begun=b'"a')
    assert closer.find(spot, 400, Work(5)) is None
    assert spot.text == b'"a'
    assert closer.find(spot, 400, Work(12_000)) is not None
