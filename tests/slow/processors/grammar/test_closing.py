"""Completions: tokens behind which an open document is complete."""

import json
from itertools import product

from processors.grammar.short_texts import SearchBudget
from tests.processors.grammar.test_closing import TOY, opened, string

BACKENDS = ("xgrammar", "llguidance")

LISTS = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1}},
    "required": ["items"],
}

BEGUN = ("", "{", '{"items":["', '{"items":["ab', '{"items":["abc","', '{"items":["ab"]')


def test_a_completion_completes_the_document_and_leaves_the_spot_alone():
    for backend, begun in product(BACKENDS, BEGUN):
        closer, spot = opened(LISTS, backend, begun.encode())
        path = closer.find(spot, 100, SearchBudget(12_000))
        items = json.loads(begun.encode() + TOY.decode(path))["items"]
        assert items, (backend, begun)
        assert all(len(item) >= 2 for item in items), (backend, begun)
        assert closer.find(spot, 100, SearchBudget(12_000)) == path, (backend, begun)
        assert closer.find(spot, len(path) - 1, SearchBudget(12_000)) is None, (backend, begun)
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
        path = closer.find(spot, 400, SearchBudget(12_000))
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
        path = closer.path(spot, 120, SearchBudget(12_000))
        assert path, (whitespace, schema, backend)
        for token in path:
            assert spot.accept(token), (whitespace, schema, backend)
        assert spot.matcher.is_complete(), (whitespace, schema, backend)
