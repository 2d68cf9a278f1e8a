"""Completions: tokens behind which an open document is complete."""

import json

from processors.base import Env
from processors.grammar.grammar_backend import load_backend
from processors.grammar.short_texts import SearchBudget, guide_of
from processors.request_values import Constraint
from processors.testing import ToyVocabulary
from tests.processors.grammar.kit import closer_of, json_spot

TOY = ToyVocabulary()
ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)


def opened(schema, backend="xgrammar", begun=b"", whitespace=0):
    loaded = load_backend(backend, ENV)
    grammar = loaded.compile(Constraint("json_schema", json.dumps(schema), backend, whitespace))
    closer = closer_of(loaded, ENV)
    spot = json_spot(closer, grammar.matcher(), begun)
    constraint = Constraint("json_schema", json.dumps(schema), backend)
    spot.guide = guide_of(constraint)
    return closer, spot


def string(**rest):
    return {"type": "string", **rest}


def test_the_end_of_a_known_completion_is_taken_where_it_fits():
    closer, spot = opened(string(pattern="^[a-z]+@[a-z]+[.]com$"), begun=b'"so')
    hint = tuple(TOY.encode('@here.com"', special=False))
    assert closer.path(spot, 20, SearchBudget(100), hint=hint) == hint
    spot.accept(TOY.encode("@", special=False)[0])
    path = closer.path(spot, 20, SearchBudget(100), hint=hint)
    assert path == hint[-len(path) :]
    assert TOY.decode(path) == b'e.com"'


def test_where_the_work_ends_nothing_is_found_and_the_spot_is_left_alone():
    closer, spot = opened(string(pattern="^[a-z]{30}@x$"), begun=b'"a')
    assert closer.find(spot, 400, SearchBudget(5)) is None
    assert spot.text == b'"a'
    assert closer.find(spot, 400, SearchBudget(12_000)) is not None


def closed(properties, required, **rest):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **rest,
    }


def test_names_that_an_object_requires_are_taken_and_others_are_left_out():
    large = closed({"text": string(minLength=50)}, ["text"])
    schema = closed({"a": large, "b": string(), "y": string(), "z": {"enum": ["xxx", "zz"]}}, ["y", "z"])
    for backend in ("xgrammar", "llguidance"):
        closer, spot = opened(schema, backend)
        path = closer.find(spot, 400, SearchBudget(2_000))
        assert TOY.decode(path) == b'{"y":"","z":"zz"}', backend


def test_a_name_that_has_begun_is_ended_as_its_pattern_asks():
    schema = closed({"id": string()}, ["id"], patternProperties={"(gcm)_.*": {"type": "null"}})
    closer, spot = opened(schema, "llguidance", b'{"id":"","it was')
    path = closer.find(spot, 40, SearchBudget(12_000))
    assert b"gcm_" in TOY.decode(path)


def test_the_rest_of_a_long_completion_is_tried_behind_white_space():
    names = [f"name{number}" for number in range(30)]
    schema = closed({name: string() for name in names}, names)
    closer, spot = opened(schema, begun=b"{", whitespace=2)
    hint = closer.find(spot, 1_000, SearchBudget(60_000))
    assert len(hint) > 100
    assert spot.accept(TOY.encode(" ", special=False)[0])
    work = SearchBudget(len(hint) + 150)
    assert closer.path(spot, 1_000, work, hint=hint) == hint


def test_a_string_that_never_ends_leaves_work_for_the_search():
    closer, spot = opened(string(pattern="^[a-z]*(http|https://)$"))
    assert closer.find(spot, 1 << 16, SearchBudget(12_000)) is not None


def test_a_string_that_has_begun_is_ended_by_the_alternative_that_it_may_still_have():
    closer, spot = opened(string(pattern="^(http)|(https)://(.*)$"), "llguidance", b'"It was a day')
    assert b"https://" in TOY.decode(closer.find(spot, 60, SearchBudget(12_000)))
