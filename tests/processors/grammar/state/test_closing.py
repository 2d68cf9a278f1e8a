"""Completions: tokens behind which an open document is complete."""

import json

from processors.base import Env
from processors.constraint import Constraint
from processors.grammar.backends.base import load_backend
from processors.grammar.state.pattern_samples import samples_of
from processors.grammar.state.work import Work
from processors.testing import ToyVocabulary
from tests.processors.grammar.kit import closer_of, json_spot

TOY = ToyVocabulary()


ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)


def opened(schema, backend="xgrammar", begun=b"", whitespace=0):
    loaded = load_backend(backend, ENV)
    grammar = loaded.compile(Constraint("json_schema", json.dumps(schema), backend, whitespace))
    closer = closer_of(loaded, ENV)
    spot = json_spot(closer, grammar.matcher(), begun)
    spot.samples = samples_of(Constraint("json_schema", json.dumps(schema), backend))
    return closer, spot


def string(**rest):
    return {"type": "string", **rest}


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
